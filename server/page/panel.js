// SPDX-License-Identifier: Apache-2.0
// Charts and totals, made of /metrics every two seconds while somebody looks.

const PANEL_PERIOD_MS = 2000;
const RATE_SECONDS = 5, WINDOW_SECONDS = 60;

const perSecond = (value) => `${formatShort(value)}/s`;

/** title, how values are written, top of the scale (0: by the values), and the lines: a name and what it is. */
const CHARTS = [
  ["Tokens written", perSecond, 0, { now: (m) => m.rate("vllm:generation_tokens_total", RATE_SECONDS) }],
  ["Prompt tokens", perSecond, 0, {
    all: (m) => m.rate("vllm:prompt_tokens_total", RATE_SECONDS),
    cached: (m) => m.rate("vllm:prefix_cache_hits_total", RATE_SECONDS),
  }],
  ["Requests", formatShort, 0, {
    running: (m) => m.value("vllm:num_requests_running"),
    waiting: (m) => m.value("vllm:num_requests_waiting"),
  }],
  ["KV memory", formatShare, 1, {
    used: (m) => m.value("vllm:kv_cache_usage_perc"),
    cached: (m) => m.value("longwave_kv_idle_bytes") / m.value("longwave_kv_limit_bytes"),
  }],
  ["First token", formatSeconds, 0, {
    p50: (m) => m.quantile(0.5, "vllm:time_to_first_token_seconds", WINDOW_SECONDS),
    p95: (m) => m.quantile(0.95, "vllm:time_to_first_token_seconds", WINDOW_SECONDS),
  }],
  ["Between tokens", formatSeconds, 0, {
    p50: (m) => m.quantile(0.5, "vllm:inter_token_latency_seconds", WINDOW_SECONDS),
    p95: (m) => m.quantile(0.95, "vllm:inter_token_latency_seconds", WINDOW_SECONDS),
  }],
  ["Keys attended", formatShare, 1, {
    "of context": (m) => m.ratio("longwave_attention_keys_seen_total", "longwave_attention_keys_total",
      WINDOW_SECONDS),
  }],
  ["Missing mass", formatShare, 0, {
    estimated: (m) => m.ratio("longwave_attention_missing_mass_sum", "longwave_attention_missing_mass_count",
      WINDOW_SECONDS),
  }],
  ["Engine at work", formatShare, 1, {
    prefill: (m) => m.rate('longwave_step_seconds_total{phase="prefill"}', RATE_SECONDS),
    decode: (m) => m.rate('longwave_step_seconds_total{phase="decode"}', RATE_SECONDS),
  }],
];

function sumOf(values, pattern) {
  return [...values].reduce((sum, [name, value]) => (pattern.test(name) ? sum + value : sum), 0);
}

const TOTALS = [
  ["Answers", /^vllm:request_success_total/],
  ["Refused with 429", /^longwave_http_responses_total\{code="429"\}/],
  // What the alert LongwaveErrors asks about.
  ["Errors of the server", /^longwave_generation_requests_total\{outcome="failure"\}/],
  ["Preemptions", /^vllm:num_preemptions_total/],
  ["Non-finite logits", /^vllm:corrupted_requests_total/],
];

const KEPT_AWAY = "No charts here: /metrics is kept from this page, by the server or by what is in front of it.";
const DENIALS = { 401: "Charts want a key: /metrics is only for those who have one.", 403: KEPT_AWAY, 404: KEPT_AWAY };

class Panel {
  history = new MetricsHistory();

  /** onLost: there was no answer at all. */
  constructor(onLost) {
    this.onLost = onLost;
    this.charts = CHARTS.map(([title, format, top, lines]) => {
      const chart = new Chart(title, Object.keys(lines), format, top);
      chart.sources = Object.values(lines);
      chart.svg.addEventListener("pointermove", (event) => this.point(event));
      chart.svg.addEventListener("pointerleave", () => this.tell(null));
      return chart;
    });
    byId("charts").append(...this.charts.map((chart) => chart.figure));
    document.addEventListener("visibilitychange", () => this.watch());
    this.watch();
  }

  /** Goes on until the page is out of sight, or may not have the metrics: then until there is another key. */
  async watch() {
    clearTimeout(this.timer);
    this.timer = null;
    this.asksAgain = this.isAsking;
    if (document.hidden || this.isAsking) return;
    this.isAsking = true;
    const isAllowed = await this.refresh();
    this.isAsking = false;
    byId("charts").hidden = byId("totals").hidden = !isAllowed;
    if (this.asksAgain) this.watch();
    else if (isAllowed) this.timer = setTimeout(() => this.watch(), PANEL_PERIOD_MS);
  }

  /** False: the page may not have them. */
  async refresh() {
    try {
      const text = await (await callServer("metrics", { signal: AbortSignal.timeout(10000) })).text();
      this.take(performance.now() / 1000, parseMetrics(text));
      byId("panel-note").textContent = `The last ${HISTORY_SECONDS / 60} minutes; all requests of this server`;
    } catch (error) {
      byId("panel-note").textContent = DENIALS[error.status] ?? `/metrics: ${error.message}`;
      if (error.status === 0) this.onLost();
      return !DENIALS[error.status];
    }
    return true;
  }

  take(at, values) {
    this.history.add(at, values);
    for (const chart of this.charts) {
      chart.add(at, chart.sources.map((source) => source(this.history)));
      chart.draw();
    }
    this.tell(this.pointed ?? null);
    byId("totals").replaceChildren(...TOTALS.flatMap(([name, pattern]) => [
      element("dt", {}, name), element("dd", {}, formatCount(sumOf(values, pattern)))]));
  }

  point(event) {
    const last = this.history.samples.at(-1);
    const box = event.currentTarget.getBoundingClientRect();
    if (last) this.tell(last.at - HISTORY_SECONDS * (1 - (event.clientX - box.left) / box.width));
  }

  tell(at) {
    this.pointed = at;
    if (this.history.samples.length) for (const chart of this.charts) chart.tell(at);
  }
}
