// Owns what one message looks like, while it arrives and after.

import { copyOnClick, element, iconButton } from "./dom.js";
import { format } from "./format.js";
import { drawMarkdown } from "./markdown.js";

export class UserView {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.said = element("div", { className: "said" }, message.content);
    this.edit = iconButton("edit", "Edit and send again", () => this.startEditing());
    this.copy = iconButton("copy", "Copy", () => {});
    copyOnClick(this.copy, () => message.content);
    this.line = element("div", { className: "message-line" }, element("span", { className: "actions" }, this.edit, this.copy));
    this.node = element("article", { className: "message user", aria: { label: "You" } }, this.said, this.line);
  }

  update({ lastOfKind, busy }) {
    this.edit.hidden = !lastOfKind || busy;
    this.node.classList.toggle("latest", lastOfKind);
  }

  startEditing() {
    const field = element("textarea", { value: this.message.content, aria: { label: "Edit message" } });
    const close = () => {
      this.node.replaceChildren(this.said, this.line);
      this.edit.focus();
    };
    const send = () => {
      const text = field.value.trim();
      if (!text) return;
      this.actions.resend(text);
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        close();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      }
    });
    const buttons = element("p", { className: "dialog-actions" },
      element("button", { type: "button", className: "text-button", on: { click: close } }, "Cancel"),
      element("button", { type: "button", className: "plain-button", on: { click: send } }, "Send again"));
    this.node.replaceChildren(element("div", { className: "editor" }, field, buttons));
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
    field.rows = Math.min(12, field.value.split("\n").length + 1);
  }
}

export class AnswerView {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.summary = element("summary");
    this.thoughts = element("div", { className: "reasoning-text" });
    this.reasoning = element("details", { className: "reasoning", hidden: true }, this.summary, this.thoughts);
    // Once a reader has opened or closed it, it stays as they left it.
    this.summary.addEventListener("click", () => (this.touched = true));
    this.body = element("div", { className: "markdown" });
    this.failure = element("div", { className: "failure", role: "alert", hidden: true });
    this.facts = element("span", { className: "facts" });
    this.again = iconButton("again", "Answer again", () => actions.regenerate());
    this.copy = iconButton("copy", "Copy", () => {});
    copyOnClick(this.copy, () => message.content);
    this.buttons = element("span", { className: "actions" }, this.copy, this.again);
    this.line = element("div", { className: "message-line" }, this.facts, this.buttons);
    this.node = element("article", { className: "message assistant", aria: { label: "Answer" } },
      this.reasoning, this.body, this.failure, this.line);
  }

  // `run` is the answer in progress, if it is this one.
  update({ last, run, busy }) {
    const { message } = this;
    this.node.classList.toggle("streaming", Boolean(run));
    this.node.classList.toggle("latest", last);
    this.node.setAttribute("aria-busy", String(Boolean(run)));
    this.drawReasoning(run);
    if (run && !message.content && !message.reasoning) {
      if (!this.waiting) {
        this.waiting = element("span", { className: "waiting" });
        this.body.replaceChildren(this.waiting);
      }
    } else {
      this.waiting?.remove();
      this.waiting = undefined;
      drawMarkdown(this.body, message.content);
    }
    this.drawFailure(run || busy || !last);
    this.drawFacts(run);
    this.buttons.hidden = Boolean(run);
    this.copy.hidden = !message.content;
    this.again.hidden = !last || busy || Boolean(message.failure);
  }

  drawReasoning(run) {
    const { reasoning, content, thought_ms: thought } = this.message;
    this.reasoning.hidden = !reasoning;
    if (!reasoning) return;
    const thinking = run && !content;
    this.summary.textContent = thinking ? "Thinking" : thought ? `Thought for ${format(thought, "ms")}` : "Thoughts";
    if (this.thoughts.textContent !== reasoning) this.thoughts.textContent = reasoning.trim();
    if (!this.touched) this.reasoning.open = Boolean(thinking);
  }

  drawFailure(settled) {
    const { failure } = this.message;
    this.failure.hidden = !failure;
    if (!failure || this.shown === failure) {
      if (failure) this.retry.hidden = settled;
      return;
    }
    this.shown = failure;
    const label = failure.kind === "key" ? "Enter key" : "Retry";
    this.retry = element("button", { type: "button", on: { click: () => this.actions.retry(failure) } }, label);
    this.retry.hidden = settled;
    this.failure.replaceChildren(
      element("div", { className: "failure-text" }, element("strong", {}, failure.title), failure.detail), this.retry);
    if (failure.retryAfter > 0) this.countDown(Math.min(failure.retryAfter, 120), label);
  }

  countDown(seconds, label) {
    this.retry.textContent = seconds > 0 ? `${label} (${seconds} s)` : label;
    if (seconds > 0) setTimeout(() => this.countDown(seconds - 1, label), 1000);
  }

  drawFacts(run) {
    const { stats = {}, finish } = this.message;
    const facts = [];
    if (run && stats.ttft_ms === undefined) {
      const waited = performance.now() - run.started;
      facts.push(waited > 600 ? `waiting for the first token, ${(waited / 1000).toFixed(1)} s` : "");
    }
    if (stats.rate) facts.push(`${format(stats.rate, "rate")} tok/s`);
    if (stats.ttft_ms !== undefined) facts.push(`first token ${format(stats.ttft_ms, "ms")}`);
    if (stats.tokens) facts.push(`${format(stats.tokens, "count")} ${stats.tokens === 1 ? "token" : "tokens"}`);
    if (stats.cached) facts.push(`${format(stats.cached, "count")} of ${format(stats.prompt, "count")} prompt tokens cached`);
    if (finish === "length") facts.push("cut at the token limit");
    if (finish === "stopped") facts.push("stopped");
    this.facts.replaceChildren(...facts.filter(Boolean).map((fact) => element("span", {}, fact)));
  }
}
