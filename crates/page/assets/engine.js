// Owns the engine view: reads the state while it is looked at, and shows it.

import { engineState } from "./api.js";
import { Sparkline, StepChart } from "./charts.js";
import { byId, element } from "./dom.js";
import { format } from "./format.js";
import { PageMap } from "./page_map.js";

const EVERY_MS = 500;
const SLOWEST_MS = 10_000;

const root = byId("engine");
const fields = [...root.querySelectorAll("[data-field]")];
const sparks = [...root.querySelectorAll("[data-history]")].map((svg) => ({ svg, line: new Sparkline(svg) }));
const map = new PageMap(byId("page-map"), byId("page-map-grain"));
const steps = new StepChart(byId("step-chart"), byId("step-readout"), byId("step-tallest"));

let timer = 0;
let failures = 0;
let looking = false;

function at(state, path) {
  return path.split(".").reduce((value, name) => value?.[name], state);
}

// What the view shows beyond what the server says. To the server a cached page is free, since it may be taken at any
// time, and a shared page is used; here each page counts once.
function derive(state) {
  const { prefix, kv, memory } = state;
  const parts = [memory?.weights, memory?.kv, memory?.scratch].filter(Number.isFinite);
  return {
    ...state,
    prefix: { ...prefix, rate: prefix?.queries > 0 ? prefix.hits / prefix.queries : undefined },
    kv: { ...kv, in_use: kv?.used / kv?.pages, unshared: kv?.used - (kv?.shared ?? 0), empty: kv?.free - (kv?.cached ?? 0) },
    memory: { ...memory, total: parts.length > 0 ? parts.reduce((sum, part) => sum + part, 0) : undefined },
  };
}

function draw(raw) {
  const state = derive(raw);
  for (const field of fields) {
    const text = format(at(state, field.dataset.field), field.dataset.format);
    if (field.textContent !== text) field.textContent = text;
  }
  for (const { svg, line } of sparks) line.add(at(state, svg.dataset.history), svg.dataset.beside && at(state, svg.dataset.beside));
  map.show(state.kv);
  steps.show(Array.isArray(state.steps) ? state.steps : []);
  for (const part of byId("memory-bar").children) part.style.flexGrow = state.memory[part.className] || 0;
  drawKernels(state.kernels);
}

const kernelRows = new Map();

// Rows are kept, so that their bars glide and the list does not jump under the reader.
function drawKernels(kernels) {
  const entries = Object.entries(kernels ?? {}).filter(([, count]) => Number.isFinite(count)).sort((a, b) => b[1] - a[1]);
  const most = Math.max(...entries.map(([, count]) => count), 1);
  const list = byId("kernel-list");
  byId("kernel-count").textContent = kernels ? format(entries.length, "count") : format(undefined, "count");
  for (const [name, row] of kernelRows) {
    if (entries.some(([other]) => other === name)) continue;
    row.node.remove();
    kernelRows.delete(name);
  }
  entries.forEach(([name, count], place) => {
    let row = kernelRows.get(name);
    if (!row) {
      const [number, share] = [element("span"), element("i", { className: "share" })];
      row = { number, share, node: element("li", { title: name }, element("span", { className: "name" }, name), number, share) };
      kernelRows.set(name, row);
    }
    row.number.textContent = format(count, "count");
    row.share.style.transform = `scaleX(${count / most})`;
    if (list.children[place] !== row.node) list.insertBefore(row.node, list.children[place] ?? null);
  });
  list.querySelector(".none")?.remove();
  if (entries.length === 0) list.append(element("li", { className: "none" }, "none counted"));
}

function status(state, text) {
  root.dataset.state = state;
  const place = byId("engine-status-text");
  if (place.textContent !== text) place.textContent = text;
}

async function read() {
  timer = 0;
  let wait = EVERY_MS;
  try {
    const state = await engineState();
    failures = 0;
    if (!looking) return;
    draw(state ?? {});
    status("live", "live");
  } catch (error) {
    failures += 1;
    wait = Math.min(EVERY_MS * 2 ** failures, SLOWEST_MS);
    const said = error.title ?? "The engine's state could not be read.";
    if (looking) status("down", `${said} Next try in ${format(wait / 1000, "duration")}.`);
  }
  if (looking && !timer) timer = setTimeout(read, wait);
}

// Reads only while somebody can see it.
export function look(visible) {
  if (visible === looking) return;
  looking = visible;
  clearTimeout(timer);
  timer = 0;
  if (looking) read();
  else if (root.dataset.state === "live") status("paused", "paused");
}
