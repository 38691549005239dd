// SPDX-License-Identifier: Apache-2.0
// The metrics page of the server over the last minutes: values, rates, and quantiles of histograms.

const HISTORY_SECONDS = 300;

/** Map from a name, with its own labels behind it, to its value: 'x_total{phase="decode"}'. */
function parseMetrics(text) {
  const values = new Map();
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!found) continue;
    const labels = [...(found[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)]
      .filter(([, name]) => name !== "model_name" && name !== "engine")
      .map(([label]) => label);
    values.set(labels.length ? `${found[1]}{${labels.join(",")}}` : found[1], Number(found[3]));
  }
  return values;
}

class MetricsHistory {
  samples = []; // { at: seconds, values }, the oldest first

  add(at, values) {
    this.samples.push({ at, values });
    while (this.samples[0].at < at - HISTORY_SECONDS) this.samples.shift();
  }

  value(name) {
    return this.samples.at(-1)?.values.get(name) ?? NaN;
  }

  /** The oldest sample of the last so many seconds; undefined: there is but one. */
  before(seconds) {
    const last = this.samples.at(-1);
    return this.samples.find((sample) => sample !== last && sample.at >= last.at - seconds);
  }

  /** What a counter grew by in the last so many seconds; NaN: not known. After a restart it began at 0. */
  growth(name, seconds) {
    const first = this.before(seconds)?.values.get(name);
    const last = this.value(name);
    if (first === undefined) return NaN;
    return last >= first ? last - first : last;
  }

  rate(name, seconds) {
    const first = this.before(seconds);
    return first ? this.growth(name, seconds) / (this.samples.at(-1).at - first.at) : NaN;
  }

  /** NaN while nothing grows. */
  ratio(above, below, seconds) {
    const n = this.growth(below, seconds);
    return n > 0 ? this.growth(above, seconds) / n : NaN;
  }

  /** Of what a histogram saw in the last so many seconds, as Prometheus reckons it: linear within a bucket. */
  quantile(q, name, seconds) {
    const total = this.growth(`${name}_count`, seconds);
    if (!(total > 0)) return NaN;
    const prefix = `${name}_bucket{le="`;
    let below = 0;
    let low = 0;
    for (const key of this.samples.at(-1).values.keys()) {
      if (!key.startsWith(prefix)) continue;
      const high = Number(key.slice(prefix.length, -2).replace("+Inf", "Infinity"));
      const n = this.growth(key, seconds);
      if (n >= q * total) return high === Infinity ? low : low + (high - low) * (q * total - below) / (n - below);
      below = n;
      low = high;
    }
    return low;
  }
}
