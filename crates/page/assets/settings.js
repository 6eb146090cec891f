// Owns the settings of a conversation: system prompt and sampling. An empty field is not sent,
// so that the server's default holds.

import { byId, element } from "./dom.js";

const NUMBERS = [
  { name: "temperature", label: "Temperature", hint: "0 always takes the likeliest", min: 0, max: 2, step: "any", short: "temperature" },
  { name: "top_p", label: "Top p", hint: "likeliest ones with this share", min: 0.001, max: 1, step: "any", short: "top p" },
  { name: "top_k", label: "Top k", hint: "only the k likeliest; 0 is off", min: 0, max: 1_000_000, step: 1, short: "top k" },
  { name: "min_p", label: "Min p", hint: "relative to the likeliest", min: 0, max: 1, step: "any", short: "min p" },
  { name: "repetition_penalty", label: "Repetition penalty", hint: "1 is off", min: 0.01, max: 10, step: "any", short: "repetition" },
  { name: "max_tokens", label: "Max tokens", hint: "longest answer", min: 1, max: 10_000_000, step: 1, short: "at most", after: " tokens" },
  { name: "seed", label: "Seed", hint: "same seed, same answer", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, short: "seed" },
];

// What the first conversation starts with, as `mettle chat` does: without either, small models lose the thread.
export const FIRST = { temperature: 0.7, top_p: 0.9 };

export class SettingsForm {
  constructor(onChange) {
    this.onChange = onChange;
    this.system = byId("set-system");
    this.fault = byId("settings-fault");
    this.inputs = new Map();
    for (const number of NUMBERS) byId("sampling").append(this.row(number));
    this.system.addEventListener("input", () => this.changed());
    byId("settings-form").addEventListener("submit", (event) => event.preventDefault());
    byId("reset-settings").addEventListener("click", () => {
      this.show({ system: this.system.value });
      this.changed();
    });
  }

  row({ name, label, hint, min, max, step }) {
    const input = element("input", {
      id: `set-${name}`, name, type: "number", min, max, step, placeholder: "default",
      inputMode: step === 1 ? "numeric" : "decimal", on: { input: () => this.changed() },
    });
    this.inputs.set(name, input);
    const text = element("label", { htmlFor: input.id }, label, element("small", {}, hint));
    return element("div", { className: "setting" }, text, input);
  }

  show(settings) {
    this.system.value = settings.system ?? "";
    for (const [name, input] of this.inputs) input.value = settings[name] ?? "";
    this.check();
  }

  check() {
    const wrong = NUMBERS.filter(({ name }) => !this.inputs.get(name).checkValidity());
    this.fault.textContent = wrong.map(({ label, min, max, step }) =>
      `${label}: ${step === 1 ? "a whole number" : "a number"} from ${min}${max < 1_000_000 ? ` to ${max}` : " up"}. It is not sent.`).join(" ");
  }

  changed() {
    this.check();
    const settings = {};
    if (this.system.value.trim()) settings.system = this.system.value;
    for (const [name, input] of this.inputs) {
      if (input.value !== "" && input.checkValidity()) settings[name] = input.valueAsNumber;
    }
    this.onChange(settings);
  }
}

export function summary(settings) {
  const parts = NUMBERS
    .filter(({ name }) => settings[name] !== undefined)
    .map(({ name, short, after = "" }) => `${short} ${settings[name]}${after}`);
  if (settings.system) parts.unshift("system prompt");
  return parts.length > 0 ? parts.join(", ") : "Default sampling";
}

export function samplingFields(settings) {
  return Object.fromEntries(NUMBERS
    .filter(({ name }) => settings[name] !== undefined)
    .map(({ name }) => [name, settings[name]]));
}
