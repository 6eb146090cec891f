// Owns how numbers are written. A missing number is a dash.

export const DASH = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

function significant(value) {
  const size = Math.abs(value);
  return size >= 100 || size === 0 ? whole.format(value) : value.toFixed(size >= 10 ? 1 : 2);
}

function duration(seconds) {
  const parts = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [Math.floor(seconds) % 60, "s"],
  ];
  const first = parts.findIndex(([amount]) => amount > 0);
  if (first < 0) return "0 s";
  return parts.slice(first, first + 2).map(([amount, unit]) => `${amount} ${unit}`).join(" ");
}

function bytes(value) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (value >= size) return `${significant(value / size)} ${unit}`;
  }
  return `${whole.format(value)} B`;
}

function milliseconds(value) {
  return value >= 1000 ? `${significant(value / 1000)} s` : `${significant(value)} ms`;
}

const FORMATS = {
  count: (value) => whole.format(value),
  rate: significant,
  ms: milliseconds,
  bytes,
  duration,
  percent: (value) => `${(value * 100).toFixed(value > 0 && value < 0.0995 ? 1 : 0)} %`,
};

export function format(value, kind) {
  if (kind === "text") return typeof value === "string" && value !== "" ? value : DASH;
  return isNumber(value) ? FORMATS[kind](value) : DASH;
}

// 1 token, 2 tokens.
export function counted(value, noun) {
  return `${format(value, "count")} ${noun}${value === 1 ? "" : "s"}`;
}
