// Owns the answers in progress: at most one per conversation, going on while another is shown.

import { chatChunks, Failure } from "./api.js";
import { samplingFields } from "./settings.js";
import * as store from "./store.js";

const SAVE_EVERY_MS = 2000;

const running = new Map();

export function runOf(id) {
  return running.get(id);
}

export function stop(id) {
  running.get(id)?.controller.abort();
}

// What the model is told. Answers that failed without text leave two messages of the user in a
// row, which many chat templates refuse: they are said as one.
function spoken({ settings, messages }) {
  const said = settings.system ? [{ role: "system", content: settings.system }] : [];
  for (const { role, content } of messages) {
    if (!content) continue;
    const before = said.at(-1);
    if (before?.role === role) before.content += `\n\n${content}`;
    else said.push({ role, content });
  }
  return said;
}

// Adds an answer to the last message and fills it. `changed(conversation, ended)` is called after
// every change; it never throws for what the server did.
export async function answer(conversation, model, changed) {
  const messages = spoken(conversation);
  const message = { role: "assistant", content: "", stats: {} };
  const run = { controller: new AbortController(), message, started: performance.now() };
  conversation.messages.push(message);
  running.set(conversation.id, run);
  store.save(conversation);
  changed(conversation, false);
  let saved = performance.now();
  try {
    const body = { model, messages, ...samplingFields(conversation.settings) };
    for await (const chunk of chatChunks(body, run.controller.signal)) {
      take(run, chunk);
      changed(conversation, false);
      if (performance.now() - saved > SAVE_EVERY_MS) {
        saved = performance.now();
        store.save(conversation);
      }
    }
  } catch (error) {
    if (run.controller.signal.aborted) {
      message.finish = "stopped";
    } else {
      const { kind, title, detail, retryAfter } = error instanceof Failure
        ? error
        : new Failure("server", "The server sent what this page does not understand.", String(error.message));
      message.failure = { kind, title, detail, retryAfter };
    }
  }
  running.delete(conversation.id);
  conversation.updated = Date.now();
  if (store.find(conversation.id) === conversation) store.save(conversation);
  changed(conversation, true);
}

function take(run, { choices, usage }) {
  const { message } = run;
  const { stats } = message;
  const choice = choices?.[0];
  const text = choice?.delta?.content ?? "";
  const thought = choice?.delta?.reasoning_content ?? choice?.delta?.reasoning ?? "";
  if (text || thought) {
    const now = performance.now();
    run.first ??= now;
    stats.ttft_ms ??= now - run.started;
    run.deltas = (run.deltas ?? 0) + 1;
    if (thought) message.reasoning = (message.reasoning ?? "") + thought;
    if (text && message.reasoning && !message.content) message.thought_ms = now - run.first;
    message.content += text;
    run.latest = now;
    // An estimate until the usage comes: a chunk is nearly always a token.
    stats.tokens = run.deltas;
  }
  if (choice?.finish_reason) message.finish = choice.finish_reason;
  if (usage) {
    stats.tokens = usage.completion_tokens ?? stats.tokens;
    stats.prompt = usage.prompt_tokens;
    stats.cached = usage.prompt_tokens_details?.cached_tokens || undefined;
  }
  const seconds = (run.latest - run.first) / 1000;
  if (stats.tokens > 1 && seconds > 0) stats.rate = (stats.tokens - 1) / seconds;
}

addEventListener("pagehide", () => {
  for (const [id] of running) {
    const conversation = store.find(id);
    if (conversation) store.save(conversation);
  }
});
