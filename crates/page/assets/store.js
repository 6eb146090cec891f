// Owns the conversations that this browser keeps: one entry each, so that two tabs do not undo
// each other's work, and never more than fits.

import { notice } from "./dom.js";

const PREFIX = "mettle.conversation.";
const MOST_CONVERSATIONS = 60;
// Browsers allow about five million characters; leave room for the one that grows.
const MOST_CHARACTERS = 3_000_000;

const conversations = new Map();
let warned = false;

function read(text) {
  try {
    const value = JSON.parse(text);
    const sound = typeof value?.id === "string" && Number.isFinite(value.updated) && Array.isArray(value.messages)
      && value.messages.every((m) => ["user", "assistant"].includes(m?.role) && typeof m.content === "string");
    return sound ? { title: "", settings: {}, ...value } : undefined;
  } catch {
    return undefined;
  }
}

export function loadAll() {
  try {
    for (let at = 0; at < localStorage.length; at += 1) {
      const name = localStorage.key(at);
      const value = name.startsWith(PREFIX) ? read(localStorage.getItem(name)) : undefined;
      if (value) conversations.set(value.id, value);
    }
  } catch {
    // No storage: conversations last as long as the page.
  }
}

// Calls back when another tab has changed a conversation that is not busy in this one.
export function watchOtherTabs(isBusy, changed) {
  addEventListener("storage", ({ key, newValue }) => {
    if (!key?.startsWith(PREFIX)) return;
    const id = key.slice(PREFIX.length);
    if (isBusy(id)) return;
    const value = newValue === null ? undefined : read(newValue);
    if (value) conversations.set(id, value);
    else conversations.delete(id);
    changed(id);
  });
}

export function newest() {
  return [...conversations.values()].sort((a, b) => b.updated - a.updated);
}

export function find(id) {
  return conversations.get(id);
}

export function create(settings) {
  const id = Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
  return { id, title: "", updated: Date.now(), settings: { ...settings }, messages: [] };
}

export function save(conversation) {
  conversations.set(conversation.id, conversation);
  const text = JSON.stringify(conversation);
  try {
    makeRoom(conversation.id, text.length);
    localStorage.setItem(PREFIX + conversation.id, text);
  } catch (error) {
    if (!warned) notice("This conversation is not kept: the browser's storage is full or switched off.");
    warned = true;
  }
}

export function remove(id) {
  conversations.delete(id);
  try {
    localStorage.removeItem(PREFIX + id);
  } catch {
    // Nothing was stored.
  }
}

// The oldest go first.
function makeRoom(id, length) {
  const sizes = newest()
    .filter((other) => other.id !== id)
    .map((other) => ({ id: other.id, size: localStorage.getItem(PREFIX + other.id)?.length ?? 0 }));
  let total = sizes.reduce((sum, { size }) => sum + size, length);
  while (sizes.length > 0 && (total > MOST_CHARACTERS || sizes.length >= MOST_CONVERSATIONS)) {
    const oldest = sizes.pop();
    total -= oldest.size;
    remove(oldest.id);
  }
}
