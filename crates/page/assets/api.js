// Owns the talk with the server: addresses, the key, events, and what went wrong in words.

const KEY = "mettle.key";

let key = "";
try {
  key = sessionStorage.getItem(KEY) ?? "";
} catch {
  // Without storage the key lasts as long as the page.
}

export function setKey(value) {
  key = value;
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    // As above.
  }
}

export class Failure extends Error {
  // `kind`: key, busy, starting, network, cut, refused, server.
  constructor(kind, title, detail = "", retryAfter = 0) {
    super(detail ? `${title} ${detail}` : title);
    Object.assign(this, { kind, title, detail, retryAfter });
  }
}

// Relative to the page, so that it also works below a path of a reverse proxy.
function request(path, options = {}) {
  const headers = new Headers(options.headers);
  if (key) headers.set("Authorization", `Bearer ${key}`);
  return fetch(new URL(path, document.baseURI), { cache: "no-store", ...options, headers });
}

async function answered(promise) {
  let response;
  try {
    response = await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("network", "The server does not answer.", `Nothing listens at ${location.host}, or the network is down.`);
  }
  if (!response.ok) throw await failureOf(response);
  return response;
}

async function failureOf(response) {
  let detail = "";
  try {
    const { error, message } = JSON.parse(await response.text());
    detail = String(error?.message ?? message ?? "");
  } catch {
    // The status says enough.
  }
  const seconds = Number.parseInt(response.headers.get("Retry-After") ?? "", 10) || 0;
  switch (response.status) {
    case 401:
    case 403:
      return new Failure("key", key ? "This API key was not accepted." : "This server asks for an API key.", detail);
    case 404:
      return new Failure("refused", "The server does not know this.", detail);
    case 413:
      return new Failure("refused", "The conversation is too large to send.", detail);
    case 429:
      return new Failure("busy", "The queue is full.", detail, seconds);
    case 503:
      return new Failure("starting", "The server takes no requests now: it is starting or stopping.", detail, seconds);
    default:
      if (response.status < 500) return new Failure("refused", "The server refused this request.", detail);
      return new Failure("server", `The server failed (${response.status}).`, detail);
  }
}

export async function listModels() {
  const response = await answered(request("v1/models", { signal: AbortSignal.timeout(10_000) }));
  const { data } = await response.json();
  return Array.isArray(data) ? data.filter((model) => typeof model?.id === "string") : [];
}

export async function engineState() {
  const response = await answered(request("engine/state", { signal: AbortSignal.timeout(4_000) }));
  return response.json();
}

// Yields the chunks of a chat completion as they come.
export async function* chatChunks(body, signal) {
  const response = await answered(request("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  }));
  for await (const data of eventData(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Failure("server", "The answer broke off.", String(chunk.error.message ?? ""));
    yield chunk;
  }
  throw new Failure("cut", "The connection closed before the answer was complete.");
}

async function* eventData(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Failure("cut", "The connection was lost.");
      }
      if (part.done) return;
      // A lone \r at the end may be half of \r\n.
      const lines = (rest + part.value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === "" && data.length > 0) {
          yield data.join("\n");
          data = [];
        } else if (line.startsWith("data:")) {
          data.push(line.slice(line[5] === " " ? 6 : 5));
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
