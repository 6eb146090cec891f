// Owns the small charts: a line of recent values, and the timeline of steps.

import { svgElement } from "./dom.js";
import { counted, format } from "./format.js";

// At two readings a second: the last minute, and at first the last twenty seconds.
const REMEMBERED = 120;
const FEWEST = 40;

export class Sparkline {
  constructor(svg) {
    this.svg = svg;
    this.top = Number(svg.dataset.top) || 0;
    this.values = [];
    this.others = [];
    svg.setAttribute("preserveAspectRatio", "none");
    this.under = svgElement("path", { class: "under" });
    this.beside = svgElement("path", { class: "beside" });
    this.trace = svgElement("path", { class: "trace" });
    svg.append(svgElement("line", { class: "ground", x1: 0, x2: "100%", y1: 100, y2: 100 }), this.under, this.beside, this.trace);
  }

  add(value, other) {
    for (const [list, item] of [[this.values, value], [this.others, other]]) {
      list.push(Number.isFinite(item) ? item : undefined);
      if (list.length > REMEMBERED) list.shift();
    }
    const known = [...this.values, ...this.others].filter((v) => v !== undefined);
    const top = this.top || Math.max(...known, 1e-9) * 1.05;
    const right = Math.max(this.values.length, FEWEST) - 1;
    const left = right + 1 - this.values.length;
    this.svg.setAttribute("viewBox", `0 0 ${right} 100`);
    const line = path(this.values, left, top);
    const whole = this.values.length > 1 && !this.values.includes(undefined);
    this.trace.setAttribute("d", line);
    this.beside.setAttribute("d", path(this.others, left, top));
    this.under.setAttribute("d", whole ? `${line}L${right} 100L${left} 100Z` : "");
  }
}

// A gap where a value is missing; the newest value at the right edge.
function path(values, left, top) {
  let d = "";
  let pen = "M";
  values.forEach((value, at) => {
    if (value === undefined) {
      pen = "M";
      return;
    }
    d += `${pen}${left + at} ${(100 - (Math.min(value, top) / top) * 96).toFixed(1)}`;
    pen = "L";
  });
  return d;
}

// Time upwards, batch downwards, one column a step, the newest at the right.
export class StepChart {
  static COLUMNS = 120;
  static GROUND = 72;

  constructor(svg, readout, tallest) {
    Object.assign(this, { svg, readout, tallest, steps: [], pointed: undefined });
    svg.setAttribute("viewBox", `0 0 ${StepChart.COLUMNS} 100`);
    svg.setAttribute("preserveAspectRatio", "none");
    this.mark = svgElement("rect", { class: "pointed", y: 0, width: 1, height: 100, visibility: "hidden" });
    this.paths = ["decode", "prefill", "batch"].map((name) => svgElement("path", { class: name }));
    svg.append(this.mark, ...this.paths, svgElement("line", { class: "ground", x1: 0, x2: StepChart.COLUMNS, y1: StepChart.GROUND, y2: StepChart.GROUND }));
    svg.addEventListener("pointermove", (event) => this.point(event));
    svg.addEventListener("pointerleave", () => this.point(undefined));
  }

  show(steps) {
    this.steps = steps.filter((step) => Number.isFinite(step?.ms)).slice(-StepChart.COLUMNS);
    const longest = Math.max(...this.steps.map(({ ms }) => ms), 1e-9);
    const widest = Math.max(...this.steps.map(({ sequences }) => sequences || 0), 1);
    const [decode, prefill, batch] = [[], [], []];
    this.steps.forEach(({ ms, tokens, sequences }, at) => {
      const x = StepChart.COLUMNS - this.steps.length + at + 0.12;
      const up = Math.max((ms / longest) * (StepChart.GROUND - 2), 0.8);
      const down = ((sequences || 0) / widest) * (98 - StepChart.GROUND);
      // A sequence that decodes brings one token; more than that is prompt.
      (tokens > sequences ? prefill : decode).push(`M${x} ${StepChart.GROUND}v${(-up).toFixed(2)}h.76V${StepChart.GROUND}z`);
      batch.push(`M${x} ${StepChart.GROUND}v${down.toFixed(2)}h.76V${StepChart.GROUND}z`);
    });
    [decode, prefill, batch].forEach((parts, at) => this.paths[at].setAttribute("d", parts.join("")));
    this.tallest.textContent = this.steps.length > 0 ? `${format(longest, "ms")}, ${format(widest, "count")} seq.` : format(undefined, "ms");
    this.read();
  }

  point(event) {
    if (event) {
      const box = this.svg.getBoundingClientRect();
      this.pointed = Math.floor(((event.clientX - box.left) / box.width) * StepChart.COLUMNS);
    } else {
      this.pointed = undefined;
    }
    this.read();
  }

  read() {
    const first = StepChart.COLUMNS - this.steps.length;
    const at = this.pointed === undefined ? this.steps.length - 1 : this.pointed - first;
    const step = this.steps[at];
    this.mark.setAttribute("visibility", step && this.pointed !== undefined ? "visible" : "hidden");
    this.mark.setAttribute("x", first + Math.max(at, 0));
    const ago = this.steps.length - 1 - at;
    const which = this.pointed === undefined ? "latest" : ago === 0 ? "latest" : `${ago} before`;
    this.readout.textContent = step
      ? `${which}: ${format(step.ms, "ms")}, ${counted(step.tokens, "token")}, ${counted(step.sequences, "sequence")}`
      : "no steps yet";
  }
}
