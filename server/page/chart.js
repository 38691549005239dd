// SPDX-License-Identifier: Apache-2.0
// A small chart of one or two lines over the last minutes.

const CHART_WIDTH = 300, CHART_HEIGHT = 60;

function svgElement(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** The next number of 1, 2 and 5 times a power of ten. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999999);
}

class Chart {
  points = []; // { at: seconds, values }, the oldest first

  /** names: of its lines; format: of their values; top: of the scale, 0: by what is there. */
  constructor(title, names, format, top = 0) {
    Object.assign(this, { title, names, format, top });
    const viewBox = `0 0 ${CHART_WIDTH} ${CHART_HEIGHT}`;
    this.svg = svgElement("svg", { viewBox, preserveAspectRatio: "none", role: "img" });
    this.paths = names.map(() => this.svg.appendChild(svgElement("path", {})));
    this.cursor = this.svg.appendChild(svgElement("line", { y1: 0, y2: CHART_HEIGHT, visibility: "hidden" }));
    this.legend = names.map(() => element("span"));
    this.topLabel = element("span", { class: "top", "aria-hidden": "true" });
    this.figure = element("figure", { class: "chart" },
      element("figcaption", {}, title, element("div", { class: "legend" }, ...this.legend)),
      element("div", { class: "plot" }, this.svg, this.topLabel));
  }

  add(at, values) {
    this.points.push({ at, values });
    while (this.points[0].at < at - HISTORY_SECONDS) this.points.shift();
  }

  x(at) {
    return CHART_WIDTH * (1 - (this.points.at(-1).at - at) / HISTORY_SECONDS);
  }

  draw() {
    const seen = this.points.flatMap((point) => point.values).filter((value) => value > 0);
    const top = this.top || (seen.length ? roundUp(Math.max(...seen)) : 1);
    this.topLabel.textContent = seen.length || this.top ? this.format(top) : "";
    this.paths.forEach((path, i) => {
      let line = "";
      let isOpen = false;
      for (const { at, values } of this.points) {
        if (!Number.isNaN(values[i])) {
          const y = CHART_HEIGHT - 1 - (CHART_HEIGHT - 2) * Math.min(1, values[i] / top);
          line += `${isOpen ? "L" : "M"}${this.x(at).toFixed(1)} ${y.toFixed(1)}`;
          if (!isOpen) line += "h0.5"; // a lone point shows too
        }
        isOpen = !Number.isNaN(values[i]);
      }
      path.setAttribute("d", line);
    });
  }

  /** Tells the values of the last point, or of the one nearest to that time. */
  tell(at = null) {
    const nearest = (a, b) => (Math.abs(b.at - at) < Math.abs(a.at - at) ? b : a);
    const point = at === null ? this.points.at(-1) : this.points.reduce(nearest);
    const words = this.names.map((name, i) => {
      const value = point.values[i];
      return `${name} ${Number.isNaN(value) ? "–" : this.format(value)}`;
    });
    this.legend.forEach((span, i) => { span.textContent = words[i]; });
    this.svg.setAttribute("aria-label", `${this.title}: ${words.join(", ")}`);
    this.cursor.setAttribute("visibility", at === null ? "hidden" : "visible");
    this.cursor.setAttribute("x1", this.x(point.at));
    this.cursor.setAttribute("x2", this.x(point.at));
  }
}
