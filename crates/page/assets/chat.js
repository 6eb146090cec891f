// Owns the chat view: which conversation is shown, the composer, and what its buttons do.

import { answer, runOf, stop } from "./answers.js";
import { listModels } from "./api.js";
import { byId, element, iconButton, notice, say } from "./dom.js";
import { askKey } from "./key.js";
import { AnswerView, UserView } from "./message.js";
import { FIRST, SettingsForm, summary } from "./settings.js";
import * as store from "./store.js";

const SUGGESTIONS = [
  "What is the capital of Germany, and what is it known for?",
  "Explain how a refrigerator works, step by step.",
  "Write a Python function that merges two sorted lists.",
];
// Close enough to the end that new text should pull the view along.
const NEAR_END = 48;
const MODELS_AGAIN_MS = 5000;

const thread = byId("thread");
const scroller = byId("scroller");
const draft = byId("draft");
const send = byId("send");

let current;
let views = [];
let model = "";
let following = true;
let frame = 0;
let size = "";

// Model

export async function loadModels() {
  let models;
  try {
    models = await listModels();
  } catch (failure) {
    showModel(failure.kind === "key" ? "needs an API key" : "not reachable");
    if (failure.kind !== "key") setTimeout(loadModels, MODELS_AGAIN_MS);
    else if (await askKey(failure)) await loadModels();
    return;
  }
  const choice = byId("model-choice");
  model = models.some(({ id }) => id === model) ? model : models[0]?.id ?? "";
  choice.replaceChildren(...models.map(({ id }) => element("option", { value: id }, id)));
  choice.value = model;
  choice.hidden = models.length < 2;
  showModel(model);
}

function showModel(text) {
  const name = byId("model-name");
  name.textContent = text;
  name.title = text;
  name.hidden = !byId("model-choice").hidden;
  byId("greeting-title").textContent = model || "Ready.";
  document.title = model ? `${model} on Mettle` : "Mettle";
}

byId("model-choice").addEventListener("change", ({ target }) => {
  model = target.value;
  showModel(model);
});

// Conversations

function drawList() {
  const rows = store.newest().map((conversation) => {
    const { id, title } = conversation;
    const isCurrent = id === current.id;
    const open = element("button", { type: "button", className: "open", title, on: { click: () => show(conversation, true) } }, title || "Untitled");
    open.dataset.id = id;
    if (isCurrent) open.setAttribute("aria-current", "true");
    const classes = [isCurrent ? "current" : "", runOf(id) ? "running" : ""];
    return element("li", { className: classes.join(" ") }, open, iconButton("delete", `Delete: ${title || "Untitled"}`, () => discard(conversation)));
  });
  const list = byId("conversation-list");
  const focused = list.contains(document.activeElement) ? document.activeElement.closest("li").querySelector(".open").dataset.id : undefined;
  list.replaceChildren(...rows);
  if (focused === undefined) return;
  // The row that had the focus may be gone with its conversation.
  const buttons = [...list.querySelectorAll(".open")];
  (buttons.find(({ dataset }) => dataset.id === focused) ?? buttons[0] ?? byId("new-conversation")).focus();
}

function discard(conversation) {
  stop(conversation.id);
  store.remove(conversation.id);
  if (conversation === current) show(store.newest()[0] ?? store.create(current.settings));
  else drawList();
  notice("Conversation deleted.", {
    label: "Undo",
    run() {
      store.save(conversation);
      show(conversation);
    },
  });
}

export function newConversation() {
  // An unused one is as good as a new one.
  show(current.messages.length === 0 ? current : store.create(current.settings), true);
}

function show(conversation, focus = false) {
  current = conversation;
  views = [];
  thread.replaceChildren();
  form.show(current.settings);
  following = true;
  drawSettingsSummary();
  drawList();
  draw();
  dispatchEvent(new Event("conversationshown"));
  if (focus) focusDraft();
}

// Messages

function draw() {
  const run = runOf(current.id);
  const { messages } = current;
  const lastUser = messages.findLastIndex(({ role }) => role === "user");
  let kept = 0;
  while (kept < views.length && views[kept].message === messages[kept]) kept += 1;
  for (const { node } of views.splice(kept)) node.remove();
  for (const message of messages.slice(kept)) {
    const view = message.role === "user" ? new UserView(message, { resend }) : new AnswerView(message, { regenerate, retry });
    views.push(view);
    thread.append(view.node);
  }
  views.forEach((view, at) => {
    // Finished answers do not change while the last one streams.
    if (run && at < lastUser && at < kept) return;
    const last = at === messages.length - 1;
    view.update({ last, lastOfKind: at === lastUser, run: last ? run : undefined, busy: Boolean(run) });
  });
  byId("greeting").hidden = messages.length > 0;
  drawSend(Boolean(run));
  if (following) toEnd();
  drawToLatest();
}

function drawSoon() {
  // Twenty times a second is smooth enough to read and leaves the machine to the model.
  frame ||= setTimeout(() => requestAnimationFrame(() => {
    frame = 0;
    draw();
  }), 50);
}

// Shows the wait for a first token as it grows.
setInterval(() => {
  const run = runOf(current?.id);
  if (run && run.first === undefined && !document.hidden) draw();
}, 200);

function changed(conversation, ended) {
  if (ended) {
    drawList();
    const { failure, finish } = conversation.messages.at(-1) ?? {};
    if (conversation === current) say(failure ? "" : finish === "stopped" ? "Stopped" : "Answer complete");
    if (failure?.kind === "key" && conversation === current) retry(failure);
  }
  if (conversation === current) {
    if (ended) draw();
    else drawSoon();
  }
}

function ask() {
  following = true;
  current.updated = Date.now();
  current.title ||= current.messages[0].content.replace(/\s+/g, " ").slice(0, 80);
  answer(current, model || undefined, changed);
  draw();
  drawList();
  say("Generating");
}

function dropAnswer() {
  while (current.messages.at(-1)?.role === "assistant") current.messages.pop();
}

function regenerate() {
  if (runOf(current.id)) return;
  dropAnswer();
  if (current.messages.length > 0) ask();
  // The button that was pressed is gone.
  focusDraft();
}

async function retry(failure) {
  const asked = current;
  if (failure.kind === "key") {
    if (!(await askKey(failure))) return;
    if (!model) await loadModels();
  } else if (!model) {
    await loadModels();
  }
  if (asked === current) regenerate();
}

function resend(text) {
  if (runOf(current.id)) return;
  dropAnswer();
  current.messages.pop();
  current.messages.push({ role: "user", content: text });
  if (current.messages.length === 1) current.title = "";
  ask();
  draft.focus();
}

function submit() {
  const text = draft.value.trim();
  if (!text || runOf(current.id)) return;
  current.messages.push({ role: "user", content: text });
  draft.value = "";
  fitDraft();
  ask();
}

// Composer

function drawSend(busy) {
  send.setAttribute("aria-label", busy ? "Stop" : "Send");
  send.title = busy ? "Stop (Esc)" : "Send (Enter)";
  send.disabled = !busy && draft.value.trim() === "";
  byId("send-icon").setAttribute("href", busy ? "#icon-stop" : "#icon-send");
}

function fitDraft() {
  draft.style.height = "auto";
  draft.style.height = `${draft.scrollHeight}px`;
  drawSend(Boolean(runOf(current.id)));
}

export function focusDraft() {
  // On a phone the keyboard would cover what the reader came to see.
  if (!matchMedia("(pointer: coarse)").matches) draft.focus();
}

export function stopCurrent() {
  const busy = Boolean(runOf(current.id));
  if (busy) stop(current.id);
  return busy;
}

draft.addEventListener("input", fitDraft);
draft.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    submit();
  } else if (event.key === "ArrowUp" && draft.value === "" && !runOf(current.id)) {
    const view = views.findLast((v) => v instanceof UserView);
    if (view) {
      event.preventDefault();
      view.startEditing();
    }
  }
});
byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!stopCurrent()) submit();
});

// Scrolling

function atEnd() {
  return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_END;
}
function drawToLatest() {
  byId("to-latest").hidden = following || atEnd();
}
function sizeOf() {
  return `${scroller.clientWidth}x${scroller.clientHeight}`;
}
function toEnd() {
  size = sizeOf();
  scroller.scrollTop = scroller.scrollHeight;
}
// Only the reader lets go of the end: a scroll that comes with a new size is the layout's.
scroller.addEventListener("scroll", () => {
  if (following && size !== sizeOf()) {
    toEnd();
    return;
  }
  following = atEnd();
  drawToLatest();
}, { passive: true });
byId("to-latest").addEventListener("click", () => {
  following = true;
  toEnd();
});
new ResizeObserver(() => {
  if (current) fitDraft();
  if (following) toEnd();
}).observe(scroller);

// Settings

const form = new SettingsForm((settings) => {
  current.settings = settings;
  if (current.messages.length > 0) store.save(current);
  drawSettingsSummary();
});

function drawSettingsSummary() {
  byId("settings-summary").textContent = summary(current.settings);
}

export function start() {
  byId("suggestions").append(...SUGGESTIONS.map((text) => element("li", {}, element("button", {
    type: "button",
    on: {
      click() {
        draft.value = text;
        submit();
        focusDraft();
      },
    },
  }, text))));
  byId("new-conversation").addEventListener("click", newConversation);
  store.loadAll();
  store.watchOtherTabs((id) => Boolean(runOf(id)), (id) => {
    if (id === current.id) show(store.find(id) ?? store.create(current.settings));
    else drawList();
  });
  show(store.newest()[0] ?? store.create(FIRST));
  fitDraft();
  focusDraft();
  loadModels();
}
