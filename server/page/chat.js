// SPDX-License-Identifier: Apache-2.0
// The conversation: sending, streaming, stopping, and what is kept of it over a reload.

const FIELDS = { temperature: "temperature", top_p: "top-p", max_tokens: "max-tokens", seed: "seed" };

/** What a user sends: the message, and behind it the files. */
function contentOf({ text, files }) {
  return [text, ...files.map((file) => `${file.name}:\n\n${file.text}`)].filter(Boolean).join("\n\n");
}

const CUT_OFF = "Cut off: this is the longest answer allowed, or all that the context has room for.";

class Chat {
  isReady = false; // the server takes requests
  files = []; // { name, text } to go with the next message
  views = []; // of turns, by index
  follows = true; // the end of the conversation stays in view

  /** onError(error): what to tell beside the conversation. */
  constructor(onError) {
    this.onError = onError;
    this.turns = kept("turns", []);
    this.list = byId("turns");
    this.message = byId("message");
    this.turns.forEach((turn) => this.showTurn(turn));
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
      view.finish(turn, () => this.again());
    }
    this.append(view);
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
    requestAnimationFrame(() => {
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
    this.removeLast();
    this.follows = true;
    this.answer();
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
    keep("turns", null);
    this.update();
    this.message.focus();
  }

  async answer() {
    const turns = this.turns; // another conversation may begin meanwhile
    const body = this.request();
    const turn = { role: "assistant", content: "", reasoning: "" };
    const view = new AnswerView();
    this.onError(null);
    this.abort = new AbortController();
    this.turns.push(turn);
    this.append(view);
    view.tellReading({});
    this.update();
    this.announce("Answering");
    let failure = null;
    try {
      const begun = performance.now();
      const response = await callServer("/v1/chat/completions", { body, signal: this.abort.signal });
      await readFrames(response, (frame) => this.take(frame, turn, view, begun));
    } catch (error) {
      failure = error;
    }
    this.abort = null;
    if (turns === this.turns) this.end(turn, view, failure);
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

  end(turn, view, failure) {
    const isStopped = failure?.name === "AbortError";
    if (failure) turn.ending = isStopped ? "Stopped." : failure.message;
    delete turn.longwave; // the facts have it
    if (failure && !turn.content && !turn.reasoning) {
      this.takeBack();
    } else {
      view.finish(turn, () => this.again());
      this.announce(turn.ending ?? `Answer complete. ${turn.facts ? factSummary(turn.facts) : ""}`);
    }
    keep("turns", this.turns);
    if (!failure || isStopped) return;
    if (failure.retryAfter) this.waitUntil = performance.now() + failure.retryAfter * 1000;
    this.onError(failure);
  }

  /** Nothing came: the message is to be sent again. */
  takeBack() {
    this.removeLast();
    const { text, files } = this.removeLast();
    if (!this.message.value) this.message.value = text;
    this.files = [...files, ...this.files];
    this.announce("");
  }

  announce(words) {
    byId("announce").textContent = words;
  }
}
