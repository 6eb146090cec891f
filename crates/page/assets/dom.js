// Owns how elements are made. Text only ever enters the page as text nodes.

const SVG = "http://www.w3.org/2000/svg";

export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element #${id}`);
  return found;
}

// `properties` are DOM properties, except `on` (listeners) and `aria` (attributes).
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (name === "aria") {
      for (const [key, text] of Object.entries(value)) node.setAttribute(`aria-${key}`, text);
    } else {
      node[name] = value;
    }
  }
  node.append(...children);
  return node;
}

export function svgElement(tag, attributes = {}) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

export function icon(name) {
  const svg = svgElement("svg", { class: "icon", "aria-hidden": "true" });
  svg.append(svgElement("use", { href: `#icon-${name}` }));
  return svg;
}

export function iconButton(name, label, onClick) {
  return element("button", { type: "button", className: "icon-button", title: label, aria: { label }, on: { click: onClick } }, icon(name));
}

export const calm = matchMedia("(prefers-reduced-motion: reduce)");

// The clipboard API exists only on https and localhost; a server on the local network is neither.
export async function copyText(text) {
  if (navigator.clipboard && isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const before = document.activeElement;
  const field = element("textarea", { value: text, className: "visually-hidden", readOnly: true });
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  before?.focus();
  if (!copied) throw new Error("the browser refused to copy");
}

export function copyOnClick(button, textOf) {
  const use = button.querySelector("use");
  button.addEventListener("click", async () => {
    try {
      await copyText(textOf());
      use.setAttribute("href", "#icon-check");
      say("Copied");
    } catch {
      notice("The browser did not allow copying.");
    }
    setTimeout(() => use.setAttribute("href", "#icon-copy"), 1400);
  });
}

// For a screen reader only.
export function say(text) {
  byId("spoken").textContent = text;
}

let noticeTimer = 0;
export function notice(text, action) {
  const place = byId("notice");
  clearTimeout(noticeTimer);
  place.replaceChildren(element("span", {}, text));
  if (action) {
    const run = () => {
      place.replaceChildren();
      action.run();
    };
    place.append(element("button", { type: "button", on: { click: run } }, action.label));
  }
  noticeTimer = setTimeout(() => place.replaceChildren(), 6000);
}
