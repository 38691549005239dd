// SPDX-License-Identifier: Apache-2.0
// An answer on its way to the screen, and what it cost.

const CHUNK_LINES = 40;

/** Lines come in chunks, so that what is added makes the browser lay out the last chunk and not all of it. */
class Lines {
  count = 0; // in the last chunk

  constructor(root) {
    this.root = root;
  }

  /** What the next line goes into, behind so many line ends. */
  next(breaks) {
    if (breaks) this.chunk?.append("\n".repeat(breaks));
    this.count += breaks;
    if (!this.chunk || this.count >= CHUNK_LINES) {
      this.root.append(this.chunk = element("span", { class: "chunk" }));
      this.count = 0;
    }
    return this.chunk;
  }
}

/** Text that grows: lines, fenced code, and within a finished line `code` and **weight**. */
class AnswerText {
  line = ""; // what has come of the current line
  isHeld = true; // nothing of it is shown yet: it may become a fence
  breaks = 0; // line ends that show once text follows
  fence = 0; // backticks that opened the code that this is; 0: it is text

  constructor(root) {
    this.root = root;
  }

  append(text) {
    text.split("\n").forEach((part, i) => {
      if (i > 0) this.endLine();
      this.put(part);
    });
  }

  put(part) {
    this.line += part;
    if (this.isHeld && /^ {0,3}(`{0,2}|`{3,}[^`]*)$/.test(this.line)) return;
    this.show(this.isHeld ? this.line : part);
    this.isHeld = false;
  }

  endLine() {
    if (!this.closeFence() && !this.openFence()) {
      if (this.isHeld) this.show(this.line);
      this.dress();
      this.breaks++;
    }
    this.line = "";
    this.isHeld = true;
  }

  /** The last line may have no end; then it opens nothing. */
  finish() {
    if (!this.closeFence()) {
      if (this.isHeld) this.show(this.line);
      this.dress();
      if (this.fence && !this.lines) this.open();
    }
    this.line = "";
  }

  openFence() {
    const found = !this.fence && this.isHeld && /^ {0,3}(`{3,})(.*)$/.exec(this.line);
    if (!found) return false;
    this.fence = found[1].length;
    this.language = found[2].trim();
    this.lines = null;
    return true;
  }

  closeFence() {
    const found = this.fence && this.isHeld && /^ {0,3}(`{3,})\s*$/.exec(this.line);
    if (!found || found[1].length < this.fence) return false;
    if (!this.lines) this.open(); // nothing is in it
    this.fence = 0;
    this.lines = null;
    return true;
  }

  show(text) {
    if (!text) return;
    if (!this.lines) this.open();
    if (this.breaks || !this.current) this.lines.next(this.breaks).append(this.current = element("span"));
    this.current.append(text);
    this.breaks = 0;
  }

  open() {
    this.breaks = 0;
    this.current = null;
    if (!this.fence) {
      this.lines = new Lines(this.root.appendChild(element("div", { class: "text" })));
      return;
    }
    const code = element("code");
    const copy = plainButton("Copy", (event) => copyText(code.textContent, event.currentTarget));
    const caption = element("figcaption", {}, this.language || "code", copy);
    this.root.append(element("figure", { class: "code" }, caption, element("pre", { tabindex: "0" }, code)));
    this.lines = new Lines(code);
  }

  /** A whole line of text gets its inner marks. */
  dress() {
    if (this.fence || !this.current || this.isHeld) return;
    const heading = /^#{1,6} +(.*)$/.exec(this.line);
    const parts = heading ? [`**${heading[1]}**`] : this.line.split(/(`[^`]+`|\*\*[^*]+\*\*)/);
    this.current.replaceChildren(...parts.map((part) => {
      if (/^`[^`]+`$/.test(part)) return element("code", {}, part.slice(1, -1));
      return /^\*\*[^]+\*\*$/.test(part) ? element("strong", {}, part.slice(2, -2)) : part;
    }));
  }
}

// ---- what it cost ----

function attentionWords(attention) {
  const name = attention.roles ? `${attention.preset} with roles ${attention.roles}` : attention.preset;
  const seen = attention.tokens_attended;
  if (seen === undefined) return name;
  if (seen >= attention.tokens_of_context) return `${name}: all ${formatCount(seen)} tokens`;
  return `${name}: ${formatCount(seen)} of ${formatCount(attention.tokens_of_context)} tokens attended`;
}

const DIVERGENCES = {
  new: "nobody went further",
  differs: "others went on differently",
  evicted: "given up for others",
  no_checkpoint: "no checkpoint",
};

function cacheWords({ divergence }) {
  if (!divergence) return "all that may match did";
  const place = divergence.message === null ? "of the prompt" : `of message ${divergence.message + 1}`;
  const reason = DIVERGENCES[divergence.reason] ?? divergence.reason;
  return `known up to character ${formatCount(divergence.character)} ${place}: ${reason}`;
}

/** [name, words] of each fact of the last object of an answer. */
function factRows({ usage, longwave: { timings, cache, attention }, firstSeconds }) {
  const cached = usage.prompt_tokens_details.cached_tokens;
  const reasoning = usage.completion_tokens_details.reasoning_tokens;
  const reasoningWords = reasoning ? `, ${formatCount(reasoning)} of them reasoning` : "";
  const rate = (ms, perSecond) => `${formatSeconds(ms / 1000)}, ${formatShort(perSecond)} tokens/s`;
  const rows = [
    ["Prompt", `${formatCount(usage.prompt_tokens)} tokens, ${formatCount(cached)} of them cached`],
    ["Cache", cacheWords(cache)],
    ["Answer", `${formatCount(usage.completion_tokens)} tokens${reasoningWords}`],
    ["First token", `${formatSeconds(firstSeconds)}, as seen here`],
    ["Queue", formatSeconds(timings.queue_ms / 1000)],
    ["Prefill", rate(timings.prefill_ms, timings.prefill_tokens_per_second)],
    ["Decoding", rate(timings.decode_ms, timings.decode_tokens_per_second)],
    ["Attention", attentionWords(attention)],
  ];
  if (attention.bytes_read !== undefined)
    rows.push(["Read", `${formatBytes(attention.bytes_read)}; dense: ${formatBytes(attention.bytes_of_context)}`]);
  if (attention.missing_mass !== undefined)
    rows.push(["Missing mass", `${formatShare(attention.missing_mass)}, estimated`]);
  if (attention.audited_missing_mass !== undefined) {
    const kl = formatShort(attention.audited_kl);
    rows.push(["Audited", `${formatShare(attention.audited_missing_mass)} missing, KL ${kl} nats`]);
  }
  if (timings.preemptions) rows.push(["Preemptions", formatCount(timings.preemptions)]);
  return rows;
}

function factSummary({ usage, longwave: { timings, attention } }) {
  const parts = [
    `${formatCount(usage.completion_tokens)} tokens`,
    `${formatShort(timings.decode_tokens_per_second)}/s`,
    attentionWords(attention),
  ];
  if (attention.missing_mass !== undefined) parts.push(`missing mass ${formatShare(attention.missing_mass)}`);
  parts.push(`${formatCount(usage.prompt_tokens_details.cached_tokens)} of ${formatCount(usage.prompt_tokens)} cached`);
  return parts.join(" · ");
}

function factTable(facts) {
  const cells = factRows(facts).flatMap(([name, words]) => [element("dt", {}, name), element("dd", {}, words)]);
  const summary = element("summary", {}, factSummary(facts));
  return element("details", { class: "facts" }, summary, element("dl", {}, ...cells));
}

// ---- on the screen ----

class AnswerView {
  constructor() {
    this.body = element("div", { class: "body" });
    this.below = element("div", { class: "below" });
    this.root = element("article", { class: "turn assistant" }, element("h2", {}, "Answer"), this.body, this.below);
    this.text = new AnswerText(this.body);
  }

  /** How far the prompt is read; null: it is. */
  tellReading(progress) {
    if (!progress) {
      this.reading?.remove();
      return;
    }
    const { processed, total, cached } = progress;
    const cachedWords = cached ? `, ${formatCount(cached)} cached` : "";
    const words = total ? `Reading ${formatCount(processed)} of ${formatCount(total)} tokens${cachedWords}` : "Waiting";
    this.reading ??= this.body.appendChild(element("div", { class: "reading" }));
    const place = total ? { max: total, value: processed } : {};
    const bar = element("progress", { "aria-label": "Prompt read", ...place });
    this.reading.replaceChildren(bar, words);
  }

  addReasoning(text) {
    if (!this.reasoning) {
      const body = element("div");
      this.reasoning = new Lines(body);
      this.body.prepend(element("details", { class: "reasoning" }, element("summary", {}, "Reasoning"), body));
    }
    text.split("\n").forEach((part, i) => this.reasoning.next(i > 0 ? 1 : 0).append(part));
  }

  addContent(text) {
    this.text.append(text);
  }

  setWriting(isWriting) {
    this.root.classList.toggle("writes", isWriting);
  }

  /** turn: as kept; onAgain: another answer is wanted; onOther: the one that this took the place of. */
  finish(turn, onAgain, onOther) {
    this.tellReading(null);
    this.setWriting(false);
    this.text.finish();
    if (turn.ending) this.body.append(element("p", { class: "ending" }, turn.ending));
    if (turn.facts) this.below.append(factTable(turn.facts));
    const copy = plainButton("Copy", (event) => copyText(turn.content, event.currentTarget));
    this.ofLast = [plainButton("Answer again", onAgain)];
    if (turn.earlier) this.ofLast.unshift(plainButton("Other answer", onOther));
    this.below.append(element("span", {}, copy, ...this.ofLast));
  }

  /** Only the last answer can be asked for again. */
  setLast(isLast) {
    for (const button of this.ofLast ?? []) button.hidden = !isLast;
  }
}
