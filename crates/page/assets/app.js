// Owns the page as a whole: which view is on, the panels over it, and the keys.

import { focusDraft, newConversation, start, stopCurrent } from "./chat.js";
import { byId, notice } from "./dom.js";
import { look } from "./engine.js";

const wide = matchMedia("(min-width: 1500px)");
const narrow = matchMedia("(max-width: 899px)");

// Views

function drawView() {
  const view = location.hash === "#engine" ? "engine" : "chat";
  document.body.dataset.view = view;
  for (const name of ["chat", "engine"]) {
    const link = byId(`to-${name}`);
    if (name === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view === "engine") closeConversations();
  look(!document.hidden && (wide.matches || view === "engine"));
}
addEventListener("hashchange", drawView);
document.addEventListener("visibilitychange", drawView);
wide.addEventListener("change", drawView);

// Conversations, a drawer on small screens

const drawer = byId("conversations");
const menu = byId("open-conversations");

function openConversations() {
  document.body.dataset.panel = "conversations";
  menu.setAttribute("aria-expanded", "true");
  byId("scrim").hidden = false;
  byId("chat").inert = true;
  byId("new-conversation").focus();
}
function closeConversations() {
  if (document.body.dataset.panel !== "conversations") return false;
  delete document.body.dataset.panel;
  menu.setAttribute("aria-expanded", "false");
  byId("scrim").hidden = true;
  byId("chat").inert = false;
  if (drawer.contains(document.activeElement)) menu.focus();
  return true;
}
menu.addEventListener("click", openConversations);
byId("scrim").addEventListener("click", closeConversations);
addEventListener("conversationshown", closeConversations);
narrow.addEventListener("change", closeConversations);

// Settings

const settings = byId("settings");
const settingsButton = byId("open-settings");

function showSettings(shown) {
  const focusWasInside = settings.contains(document.activeElement);
  settings.hidden = !shown;
  settingsButton.setAttribute("aria-expanded", String(shown));
  if (shown) byId("close-settings").focus();
  else if (focusWasInside) settingsButton.focus();
}
settingsButton.addEventListener("click", () => showSettings(settings.hidden));
byId("close-settings").addEventListener("click", () => showSettings(false));

// Theme

const themeButton = byId("theme");
function labelTheme() {
  const words = { system: "as the system", light: "light", dark: "dark" }[globalThis.mettleTheme.choice];
  const label = `Theme: ${words}`;
  themeButton.setAttribute("aria-label", label);
  themeButton.title = label;
  return label;
}
function nextTheme() {
  globalThis.mettleTheme.next();
  notice(labelTheme());
}
themeButton.addEventListener("click", nextTheme);
labelTheme();

// Keys

const help = byId("help");
byId("open-help").addEventListener("click", () => help.showModal());
for (const dialog of document.querySelectorAll("dialog")) {
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

function toChat() {
  if (!wide.matches && document.body.dataset.view !== "chat") location.hash = "#chat";
}

const KEYS = {
  "/": () => {
    toChat();
    closeConversations();
    byId("draft").focus();
  },
  "?": () => help.showModal(),
  n: () => {
    toChat();
    newConversation();
  },
  s: () => {
    toChat();
    showSettings(settings.hidden);
  },
  e: () => {
    location.hash = document.body.dataset.view === "engine" ? "#chat" : "#engine";
  },
  t: nextTheme,
};

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (closeConversations() || stopCurrent()) return;
    if (!settings.hidden) showSettings(false);
    return;
  }
  const key = KEYS[event.key.toLowerCase()];
  if (!key || isTyping(event.target)) return;
  event.preventDefault();
  key();
});

start();
drawView();
if (!wide.matches && document.body.dataset.view === "chat") focusDraft();
