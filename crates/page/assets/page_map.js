// Owns the map of KV pages: one cell a page, or several pages a cell where there are too many.

import { calm } from "./dom.js";

const STATES = [".", "c", "u", "s"];
const COLOURS = ["--page-free", "--page-cached", "--page-used", "--page-shared"];
const FADE_MS = 350;
// In CSS pixels, the gap to the next cell included.
const [SMALLEST, LARGEST] = [5, 28];
const GAP = 2;

export class PageMap {
  constructor(canvas, grain) {
    this.canvas = canvas;
    this.grain = grain;
    this.context = canvas.getContext("2d");
    this.map = "";
    this.readColours();
    addEventListener("themechange", () => {
      this.readColours();
      this.layOut();
    });
    let width = 0;
    new ResizeObserver(() => {
      // The height follows from the width, and is no reason to begin again.
      if (canvas.clientWidth !== width) this.layOut();
      width = canvas.clientWidth;
    }).observe(canvas);
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    this.colours = COLOURS.map((name) => {
      const hex = style.getPropertyValue(name).trim().slice(1);
      return [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
    });
  }

  show(kv) {
    const map = typeof kv?.map === "string" ? kv.map : "";
    const counted = [["used", kv?.unshared], ["shared", kv?.shared], ["cached", kv?.cached], ["free", kv?.empty]].filter(([, count]) => Number.isFinite(count));
    this.canvas.setAttribute("aria-label", `Map of KV pages: ${counted.map(([name, count]) => `${count} ${name}`).join(", ") || "no data"}`);
    const resized = map.length !== this.map.length;
    if (!resized && map === this.map) return;
    this.map = map;
    if (resized) this.layOut();
    else this.fade();
  }

  // Chooses the fewest columns with which all pages fit the height; where even the smallest cells
  // are too many, pages share cells.
  layOut() {
    const width = this.canvas.clientWidth;
    const pages = this.map.length;
    if (width === 0) return;
    if (pages === 0) {
      this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
      this.canvas.style.height = "";
      return;
    }
    const tallest = Number(getComputedStyle(this.canvas).getPropertyValue("--map-height")) || 200;
    const most = Math.max(1, Math.floor((width + GAP) / SMALLEST));
    const fits = (columns) => Math.ceil(pages / columns) * ((width + GAP) / columns) <= tallest + GAP;
    let columns = Math.min(most, Math.max(1, Math.ceil((width + GAP) / LARGEST)));
    while (columns < most && !fits(columns)) columns += 1;
    // A few columns more are worth it where the last row then comes out full.
    for (let wider = columns; wider <= Math.min(most, columns * 1.15); wider += 1) {
      if (pages % wider === 0 && fits(wider)) {
        columns = wider;
        break;
      }
    }
    this.columns = columns;
    this.pitch = (width + GAP) / columns;
    const rows = Math.max(1, Math.floor((tallest + GAP) / this.pitch));
    this.perCell = Math.max(1, Math.ceil(pages / (columns * rows)));
    this.grain.hidden = this.perCell === 1;
    this.grain.textContent = this.perCell > 1 ? `a cell is ${this.perCell} pages` : "";
    const height = Math.ceil(Math.ceil(pages / this.perCell) / columns) * this.pitch - GAP;
    const scale = devicePixelRatio || 1;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    cancelAnimationFrame(this.frame);
    this.now = this.target();
    this.paint(this.now);
  }

  // Colour of every cell: the mean of its pages.
  target() {
    const cells = Math.ceil(this.map.length / this.perCell);
    const out = new Float32Array(cells * 3);
    for (let cell = 0; cell < cells; cell += 1) {
      const from = cell * this.perCell;
      const to = Math.min(from + this.perCell, this.map.length);
      for (let page = from; page < to; page += 1) {
        const colour = this.colours[Math.max(0, STATES.indexOf(this.map[page]))];
        for (let c = 0; c < 3; c += 1) out[cell * 3 + c] += colour[c] / (to - from);
      }
    }
    return out;
  }

  fade() {
    const [from, to] = [this.now, this.target()];
    cancelAnimationFrame(this.frame);
    if (calm.matches || from.length !== to.length) {
      this.now = to;
      this.paint(to);
      return;
    }
    // Only what changes is painted: the processor is needed elsewhere.
    const changing = [];
    for (let cell = 0; cell * 3 < to.length; cell += 1) {
      if ([0, 1, 2].some((c) => from[cell * 3 + c] !== to[cell * 3 + c])) changing.push(cell);
    }
    const began = performance.now();
    const tick = (time) => {
      const share = Math.min(1, Math.max(0, (time - began) / FADE_MS));
      const eased = 1 - (1 - share) ** 3;
      this.now = from.slice();
      for (const cell of changing) {
        for (let at = cell * 3; at < cell * 3 + 3; at += 1) this.now[at] += (to[at] - from[at]) * eased;
        this.paintCell(this.now, cell);
      }
      if (share < 1) this.frame = requestAnimationFrame(tick);
      else this.now = to;
    };
    this.frame = requestAnimationFrame(tick);
  }

  paint(cells) {
    this.context.clearRect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
    for (let cell = 0; cell * 3 < cells.length; cell += 1) this.paintCell(cells, cell);
  }

  paintCell(cells, cell) {
    const { context, pitch, columns } = this;
    const [x, y] = [(cell % columns) * pitch, Math.floor(cell / columns) * pitch];
    const [side, corner] = pitch > 8 ? [pitch - GAP, 2] : [pitch - 1, 0];
    context.fillStyle = `rgb(${cells[cell * 3] | 0} ${cells[cell * 3 + 1] | 0} ${cells[cell * 3 + 2] | 0})`;
    context.clearRect(x - 0.5, y - 0.5, side + 1, side + 1);
    context.beginPath();
    context.roundRect(x, y, side, side, corner);
    context.fill();
  }
}
