// SPDX-License-Identifier: Apache-2.0
// The conversation: sending, streaming, stopping, and what is kept of it over a reload.

const FIELDS = { temperature: "temperature", top_p: "top-p", max_tokens: "max-tokens", seed: "seed" };

/** What a user sends: the message, and behind it the files. */
function contentOf({ text, files }) {
  return [text, ...files.map((file) => `${file.name}:\n\n${file.text}`)].filter(Boolean).join("\n\n");
}

/** Of a stored turn: another version of this page may have written it, or something else. */
function isTurn(turn) {
  const areTexts = (...values) => values.every((value) => typeof value === "string");
  if (turn?.role === "user") {
    const { text, files } = turn;
    return areTexts(text) && Array.isArray(files) && files.every((file) => areTexts(file?.name, file?.text));
  }
  if (turn?.role !== "assistant") return false;
  try {
    if (turn.facts) factTable(turn.facts);
  } catch {
    return false;
  }
  const { content, reasoning = "", ending = "", earlier } = turn;
  return areTexts(content, reasoning, ending) && (earlier === undefined || isTurn(earlier));
}

/** One answer before the one that is shown is kept, not those before it. */
function withoutEarlier(turn) {
  return turn && { ...turn, earlier: undefined };
}

const LEFT = "Cut off: the page was left.";
const CUT_OFF = "Cut off: this is the longest answer allowed, or all that the context has room for.";

class Chat {
  isReady = false; // the server takes requests
  files = []; // { name, text } to go with the next message
  views = []; // of turns, by index
  follows = true; // the end of the conversation stays in view

  /** onError(error): what to tell beside the conversation. */
  constructor(onError) {
    this.onError = onError;
    this.list = byId("turns");
    this.message = byId("message");
    this.restore();
    this.list.addEventListener("scroll", () => {
      this.follows = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 40;
    });
    new ResizeObserver(() => this.follow()).observe(this.list);
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.message.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      byId("composer").requestSubmit();
    });
    byId("stop").addEventListener("click", () => this.stop());
    byId("add-file").addEventListener("change", (event) => this.addFiles(event.target));
    this.update();
  }

  // ---- what is kept ----

  /** What an answer that is being written leaves if it ends now: itself, the one before it, or nothing. */
  standing() {
    const { turn, earlier } = this.open;
    if (turn.content || turn.reasoning) return [{ ...turn, longwave: undefined, ending: LEFT, earlier: withoutEarlier(earlier) }];
    return earlier ? [earlier] : [];
  }

  /** False: a reload would lose something. */
  save() {
    const turns = this.open ? [...this.turns.slice(0, -1), ...this.standing()] : this.turns;
    const draft = { role: "user", text: this.message.value, files: this.files };
    const keepsTurns = keep("turns", turns.length ? turns : null);
    return keep("draft", draft.text || draft.files.length ? draft : null) && keepsTurns;
  }

  /** What ends from here on ends because the page goes. */
  leave() {
    this.save();
    this.isLeft = true;
  }

  restore() {
    const turns = kept("turns", []);
    const draft = kept("draft", null);
    this.turns = Array.isArray(turns) && turns.every(isTurn) ? turns : [];
    this.turns.forEach((turn) => this.showTurn(turn));
    if (draft?.role === "user" && isTurn(draft)) this.putBack(draft);
    if (this.turns.at(-1)?.role === "user") this.putBack(this.removeLast()); // nothing had come
  }

  // ---- what is shown ----

  showTurn(turn) {
    let view;
    if (turn.role === "user") {
      const body = element("div", { class: "body", tabindex: "0" }, contentOf(turn));
      view = { root: element("article", { class: "turn user" }, element("h2", {}, "You"), body) };
    } else {
      view = new AnswerView();
      if (turn.reasoning) view.addReasoning(turn.reasoning);
      view.addContent(turn.content);
      this.finish(view, turn);
    }
    this.append(view);
  }

  finish(view, turn) {
    view.finish(turn, () => this.again(), () => this.exchange());
  }

  append(view) {
    this.views.push(view);
    this.list.append(view.root);
    this.follow();
  }

  removeLast() {
    this.views.pop().root.remove();
    return this.turns.pop();
  }

  follow() {
    if (this.isFollowing) return;
    this.isFollowing = true;
    requestAnimationFrame(() => {
      this.isFollowing = false;
      if (this.follows) this.list.scrollTop = this.list.scrollHeight;
    });
  }

  update() {
    byId("empty").hidden = this.turns.length > 0;
    byId("send").hidden = Boolean(this.abort);
    byId("stop").hidden = !this.abort;
    const wait = Math.ceil(((this.waitUntil ?? 0) - performance.now()) / 1000);
    byId("send").disabled = !this.isReady || wait > 0;
    byId("send").textContent = wait > 0 ? `Send in ${wait} s` : "Send";
    clearTimeout(this.timer);
    if (wait > 0) this.timer = setTimeout(() => this.update(), 500);
    byId("files").hidden = !this.files.length;
    byId("files").replaceChildren(...this.files.map((file) => {
      const leaveOut = plainButton("×", () => this.removeFile(file), { "aria-label": `Leave ${file.name} out` });
      return element("li", {}, `${file.name}, ${formatBytes(file.text.length)} `, leaveOut);
    }));
    const canRepeat = this.isReady && !this.abort;
    this.views.forEach((view, i) => view.setLast?.(canRepeat && i === this.views.length - 1));
  }

  setReady(isReady) {
    this.isReady = isReady;
    this.update();
  }

  // ---- files ----

  async addFiles(input) {
    for (const file of input.files) this.files.push({ name: file.name, text: await file.text() });
    input.value = "";
    this.update();
    this.message.focus();
  }

  removeFile(file) {
    this.files = this.files.filter((other) => other !== file);
    this.update();
    this.message.focus();
  }

  // ---- a request ----

  request() {
    const system = byId("system").value.trim();
    const messages = this.turns.map((turn) =>
      ({ role: turn.role, content: turn.role === "user" ? contentOf(turn) : turn.content }));
    if (system) messages.unshift({ role: "system", content: system });
    const attention = JSON.parse(byId("policy").value);
    if (byId("budget").value) attention.budget = byId("budget").valueAsNumber;
    const longwave = { progress: true };
    if (Object.keys(attention).length) longwave.attention = attention;
    const body = {
      model: byId("model").value, messages, stream: true, stream_options: { include_usage: true }, longwave,
    };
    for (const [field, id] of Object.entries(FIELDS)) if (byId(id).value) body[field] = byId(id).valueAsNumber;
    return body;
  }

  submit() {
    const text = this.message.value.trim();
    if (this.abort || byId("send").disabled || (!text && !this.files.length)) return;
    this.turns.push({ role: "user", text, files: this.files });
    this.files = [];
    this.message.value = "";
    this.follows = true;
    this.showTurn(this.turns.at(-1));
    this.answer();
  }

  again() {
    if (this.abort || !this.isReady) return;
    const last = this.removeLast();
    this.follows = true;
    this.answer(last);
  }

  /** The last answer and the one that it took the place of. */
  exchange() {
    const { earlier, ...turn } = this.removeLast();
    this.turns.push({ ...earlier, earlier: turn });
    this.showTurn(this.turns.at(-1));
    this.save();
    this.update();
  }

  stop() {
    this.abort?.abort();
    this.message.focus();
  }

  clear() {
    this.stop();
    this.list.replaceChildren(byId("empty"));
    this.turns = [];
    this.views = [];
    this.open = null;
    this.save();
    this.update();
    this.message.focus();
  }

  /** earlier: the answer that this one is to take the place of. */
  async answer(earlier) {
    const turns = this.turns; // another conversation may begin meanwhile
    const body = this.request();
    const turn = { role: "assistant", content: "", reasoning: "" };
    const view = new AnswerView();
    this.onError(null);
    this.abort = new AbortController();
    this.open = { turn, earlier };
    this.turns.push(turn);
    this.append(view);
    view.tellReading({});
    this.update();
    this.save();
    this.announce("Answering");
    let failure = null;
    try {
      const begun = performance.now();
      const response = await callServer("v1/chat/completions", { body, signal: this.abort.signal });
      await readFrames(response, (frame) => this.take(frame, turn, view, begun));
    } catch (error) {
      failure = error;
    }
    if (this.isLeft) return;
    this.abort = null;
    if (turns === this.turns) this.end(view, failure);
    this.update();
  }

  take(frame, turn, view, begun) {
    const choice = frame.choices[0];
    const delta = choice?.delta ?? {};
    const { longwave, usage } = frame;
    if (longwave?.progress) view.tellReading(longwave.progress);
    if (delta.content || delta.reasoning_content) {
      turn.firstSeconds ??= (performance.now() - begun) / 1000;
      view.tellReading(null);
      view.setWriting(true);
    }
    if (delta.reasoning_content) {
      turn.reasoning += delta.reasoning_content;
      view.addReasoning(delta.reasoning_content);
    }
    if (delta.content) {
      turn.content += delta.content;
      view.addContent(delta.content);
    }
    if (choice?.finish_reason === "length") turn.ending = CUT_OFF;
    if (longwave?.timings) turn.longwave = longwave;
    turn.firstSeconds ??= usage && (performance.now() - begun) / 1000; // an answer without a token
    if (usage && turn.longwave) turn.facts = { usage, longwave: turn.longwave, firstSeconds: turn.firstSeconds };
    this.follow();
  }

  end(view, failure) {
    const { turn, earlier } = this.open;
    const isStopped = failure?.name === "AbortError";
    this.open = null;
    if (failure) turn.ending = isStopped ? "Stopped." : failure.message;
    delete turn.longwave; // the facts have it
    if (failure && !turn.content && !turn.reasoning) {
      this.takeBack(earlier);
    } else {
      if (earlier) turn.earlier = withoutEarlier(earlier);
      this.finish(view, turn);
      this.announce(turn.ending ?? `Answer complete. ${turn.facts ? factSummary(turn.facts) : ""}`);
    }
    this.save();
    if (!failure || isStopped) return;
    if (failure.retryAfter) this.waitUntil = performance.now() + failure.retryAfter * 1000;
    this.onError(failure);
  }

  /** Nothing came: the earlier answer stands, or the message is to be sent again. */
  takeBack(earlier) {
    this.removeLast();
    if (earlier) {
      this.turns.push(earlier);
      this.showTurn(earlier);
    } else {
      this.putBack(this.removeLast());
    }
    this.announce("");
  }

  /** Before what is being written meanwhile. */
  putBack({ text, files }) {
    this.message.value = [text, this.message.value].filter((part) => part.trim()).join("\n\n");
    this.files = [...files, ...this.files];
  }

  announce(words) {
    byId("announce").textContent = words;
  }
}
