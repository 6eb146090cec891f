#!/usr/bin/env python3
"""Drives the page of a running server in headless Chromium, as a person would, and saves pictures.

    python3 crates/page/tests/browser.py http://127.0.0.1:8000 pictures/ [--key KEY] [--chromium PATH]

Exits with 1 and one line per fault. Needs Python and Chromium, no packages.
"""

import argparse
import json
import os
import sys
import time
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cdp import Failed, Page  # noqa: E402

LONG = "Write a long story about a lighthouse keeper. Describe every day of one whole month, one paragraph a day."

NASTY = """# Title <img src=x onerror=window.broken=1>

<script>window.broken = 1</script> and [a link](javascript:window.broken=1) and [a page](https://example.org/a_(b) "t")

![a picture](https://example.org/picture.png) **bold *both*** `<b>code</b>` snake_case_name 2 * 3 * 4

| a | b |
|:--|--:|
| 1 | <i>2</i> |

1. one
   - inner
2. two

> quoted
still quoted

```html
<script>window.broken = 1</script>
```

- [x] done
- [ ] open
"""


class Test:
    def __init__(self, base, pictures, key, chromium):
        self.base = base.rstrip("/") + "/"
        self.pictures = pictures
        self.key = key
        self.page = Page(chromium)
        self.faults = []
        os.makedirs(pictures, exist_ok=True)

    def check(self, holds, what):
        print(("ok    " if holds else "FAULT ") + what, flush=True)
        if not holds:
            self.faults.append(what)

    def text(self, selector):
        return self.page.evaluate(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''")

    def shoot(self, name):
        self.page.shoot(os.path.join(self.pictures, name + ".png"))

    def state(self):
        request = urllib.request.Request(self.base + "engine/state")
        if self.key:
            request.add_header("Authorization", f"Bearer {self.key}")
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    def send(self, text):
        self.page.evaluate("document.getElementById('draft').focus()")
        self.page.type(text)
        self.page.key("Enter")

    def finish(self, seconds=180):
        """Until the answer is complete. One that goes on and on is stopped, as a person would."""
        answer = "document.querySelector('.message.latest .markdown')?.textContent"
        failed = "document.querySelector('.message.latest .failure:not([hidden])')"
        long = f"{answer}?.length > 400"
        self.page.until(
            f"({answer} && !document.querySelector('.streaming')) || {long} || {failed}",
            "the answer is complete",
            seconds,
        )
        if self.page.evaluate(f"!!{failed}"):
            raise Failed("no answer: " + self.text(".message.latest .failure-text"))
        if self.page.evaluate("!!document.querySelector('.streaming')"):
            self.page.key("Escape")
            self.page.until("!document.querySelector('.streaming')", "Esc stops", 5)

    def begins(self, characters=20):
        failed = "document.querySelector('.message.latest .failure:not([hidden])')"
        self.page.until(
            f"document.querySelector('.message.latest .markdown')?.textContent.length > {characters} || {failed}",
            "the answer begins",
            60,
        )
        if self.page.evaluate(f"!!{failed}"):
            raise Failed("no answer: " + self.text(".message.latest .failure-text"))

    def last(self):
        return self.page.evaluate("[...document.querySelectorAll('.assistant .markdown')].at(-1)?.textContent ?? ''")

    def new(self):
        self.page.evaluate("document.getElementById('new-conversation').click()")

    def settle(self, seconds=0.5):
        self.page.evaluate(f"new Promise(done => setTimeout(done, {seconds * 1000}))")

    # The parts

    def first_sight(self):
        self.page.size(1440, 900)
        self.page.scheme("light")
        self.page.open(self.base)
        if self.key:
            self.page.until("document.getElementById('key-dialog').open", "the page asks for the key")
            self.page.type(self.key)
            self.page.key("Enter")
            self.page.errors.clear()
        self.page.until("document.title.endsWith('on Mettle')", "the model's name is read")
        self.check(self.text("#model-name") != "", "the model's name is in the bar")
        self.check(self.page.evaluate("document.activeElement.id") == "draft", "the message field has the focus")
        self.shoot("desktop-empty")

    def stream(self):
        self.send("Name the planets of the solar system, and say one sentence about each.")
        self.finish()
        facts = self.text(".assistant .facts")
        self.check("tok/s" in facts and "first token" in facts, f"speed is told: {facts}")
        self.check(
            self.page.evaluate("document.querySelector('.assistant').getAttribute('aria-busy')") == "false",
            "aria-busy ends",
        )
        self.shoot("desktop-answer")

    def stop(self):
        self.new()
        # Noted by the page itself: looks from outside are too rare for a fast answer.
        self.page.evaluate(
            "window.lengths = new Set(); new MutationObserver(() => window.lengths.add("
            "document.querySelector('.assistant .markdown')?.textContent.length ?? 0"
            ")).observe(document.body, { childList: true, characterData: true, subtree: true })"
        )
        self.send(LONG)
        self.begins(40)
        self.page.until("window.lengths.size >= 5 || !document.querySelector('.streaming')", "the answer grows", 60)
        self.check(
            self.page.evaluate("window.lengths.size >= 5 && !!document.querySelector('.streaming')"),
            "the answer grows while it arrives",
        )
        self.check(
            self.page.evaluate("document.getElementById('send').getAttribute('aria-label')") == "Stop",
            "the button stops",
        )
        self.page.key("Escape")
        self.page.until("!document.querySelector('.streaming')", "Esc stops", 5)
        length = len(self.last())
        self.settle(1)
        self.check(len(self.last()) == length, f"nothing more arrives after Esc ({length} characters)")
        self.check("stopped" in self.text(".assistant .facts"), "the answer is marked as stopped")
        deadline = time.time() + 10
        while self.state().get("requests", {}).get("running") and time.time() < deadline:
            time.sleep(0.2)
        self.check(not self.state().get("requests", {}).get("running"), "the engine has let go of it")

    def again_and_edit(self):
        self.page.click(".assistant .actions [aria-label='Answer again']")
        self.begins()
        self.page.key("Escape")
        self.page.until("!document.querySelector('.streaming')", "Esc stops", 5)
        self.check(
            self.page.evaluate("document.querySelectorAll('.message').length") == 2,
            "answering again replaces the answer",
        )
        self.page.evaluate("document.getElementById('draft').focus()")
        self.page.key("ArrowUp")
        self.page.until("document.activeElement.matches('.editor textarea')", "Up edits the last message")
        self.page.evaluate("document.activeElement.select()")
        self.page.type("What is the capital of Germany?")
        self.page.key("Enter")
        self.finish()
        self.check(
            self.text(".said") == "What is the capital of Germany?" and self.last() != "",
            "the edited message is answered",
        )
        self.page.open(self.base + "?again")
        self.page.until("document.querySelectorAll('.message').length === 2", "the conversation survives a reload")

    def settings(self):
        self.new()
        self.page.evaluate("document.getElementById('scroller').focus()")
        self.page.key("s")
        self.page.until("!document.getElementById('settings').hidden", "S opens the settings")
        sent = "window.sent = []; const real = fetch; window.fetch = (u, o) => { if (o?.body) window.sent.push(JSON.parse(o.body)); return real(u, o); }; true"
        self.page.evaluate(sent)
        for name, value in [("temperature", "0"), ("max_tokens", "12"), ("seed", "7"), ("top_p", "7")]:
            self.page.evaluate(f"(e => {{ e.focus(); e.select(); }})(document.getElementById('set-{name}'))")
            self.page.type(value)
        self.page.evaluate("document.getElementById('set-system').focus()")
        self.page.type("You answer in one word.")
        self.shoot("desktop-settings")
        self.check("Top p" in self.text("#settings-fault"), "a wrong value is named")
        self.page.key("Escape")
        self.check(self.page.evaluate("document.getElementById('settings').hidden"), "Esc closes the settings")
        self.send("Tell me everything about Rome.")
        self.finish()
        body = self.page.evaluate("window.sent.at(-1)")
        self.check(
            body["temperature"] == 0 and body["max_tokens"] == 12 and body["seed"] == 7 and "top_p" not in body,
            "sampling is sent, wrong values are not",
        )
        self.check(
            body["messages"][0] == {"role": "system", "content": "You answer in one word."}, "the system prompt is sent"
        )
        self.page.evaluate("document.getElementById('scroller').focus()")
        self.page.key("s")
        self.page.click("#reset-settings")
        self.page.evaluate("document.getElementById('set-system').select(); document.execCommand('delete')")
        self.page.key("Escape")
        self.check(self.text("#settings-summary") == "Default sampling", "settings go back to the server's")

    def markdown(self):
        saved = {
            "id": "nasty",
            "title": "Markdown",
            "updated": 4102444800000,
            "settings": {},
            "messages": [
                {"role": "user", "content": "<b>plain</b>"},
                {
                    "role": "assistant",
                    "content": NASTY,
                    "reasoning": "First I think.",
                    "stats": {"rate": 40, "ttft_ms": 80, "tokens": 90},
                    "finish": "stop",
                },
            ],
        }
        self.page.evaluate(f"localStorage.setItem('mettle.conversation.nasty', {json.dumps(json.dumps(saved))})")
        before = len(self.page.requested)
        self.page.open(self.base + "?markdown")
        self.page.until("document.querySelector('.markdown h1')", "markdown is drawn")
        count = lambda selector: self.page.evaluate(
            f"document.querySelectorAll({json.dumps('.markdown ' + selector)}).length"
        )  # noqa: E731
        self.check(
            count("script") + count("img") + count("i") == 0 and not self.page.evaluate("!!window.broken"),
            "markup in an answer stays text",
        )
        links = self.page.evaluate(
            "[...document.querySelectorAll('.markdown a')].map(a => [a.protocol, a.rel, a.pathname])"
        )
        self.check(
            links == [["https:", "noopener noreferrer", "/a_(b)"], ["https:", "noopener noreferrer", "/picture.png"]],
            f"links are safe: {links}",
        )
        for selector, number in [
            ("h1", 1),
            ("td", 2),
            ("th.right", 1),
            ("ol > li", 2),
            ("ol ul li", 1),
            ("blockquote", 1),
            ("pre code", 1),
            ("strong em", 1),
            ("input[type=checkbox]", 2),
            ("em", 1),
        ]:
            self.check(count(selector) == number, f"markdown: {selector} {count(selector)} of {number}")
        self.check(self.text(".code-head span") == "html", "code names its language")
        self.check(self.page.evaluate("!document.querySelector('.reasoning').open"), "reasoning is folded")
        self.check(self.text(".said") == "<b>plain</b>", "the user's text stays text")
        self.check(not [u for u in self.page.requested[before:] if "example.org" in u], "an answer loads nothing")
        self.shoot("desktop-markdown")
        self.page.evaluate("document.querySelector('.conversation-list .current .icon-button').click()")

    def failures(self):
        self.new()
        error = lambda text: json.dumps({"error": {"message": text}})  # noqa: E731
        self.page.answer_instead("*/v1/chat/completions", (429, {"Retry-After": "2"}, error("64 requests are waiting")))
        self.send("Say hello.")
        self.page.until("document.querySelector('.failure:not([hidden])')", "a full queue is told")
        self.check("queue is full" in self.text(".failure") and "64 requests" in self.text(".failure"), "429 in words")
        self.shoot("desktop-busy")
        self.page.replies = [(503, {}, error("draining"))]
        self.page.click(".failure button")
        self.page.until(
            "document.querySelector('.failure strong')?.textContent.includes('starting or stopping')", "503 in words"
        )
        self.page.replies = [(401, {}, error("wrong key"))]
        self.page.click(".failure button")
        self.page.until("document.getElementById('key-dialog').open", "401 asks for a key")
        self.shoot("desktop-key")
        self.page.type(self.key or "a key")
        self.page.key("Enter")
        self.page.until("!document.querySelector('.message.latest .failure:not([hidden])')", "the key is used")
        self.finish()
        self.check(
            self.last() != ""
            and self.page.evaluate("!!sessionStorage.getItem('mettle.key') && !localStorage.getItem('mettle.key')"),
            "with a key the answer comes; the key stays in the session",
        )
        self.page.answer_no_more()
        self.page.call(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )
        self.send("Are you there?")
        self.page.until(
            "[...document.querySelectorAll('.failure:not([hidden])')].at(-1)?.textContent.includes('does not answer')",
            "a dead network is told",
        )
        self.shoot("desktop-offline")
        self.page.call(
            "Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )
        self.page.click(".message.latest .failure button")
        self.page.until("!document.querySelector('.message.latest .failure:not([hidden])')", "Retry asks again")
        self.finish()
        self.check(
            self.last() != "" and not self.page.evaluate("!!document.querySelector('.failure:not([hidden])')"),
            "Retry answers once the network is back",
        )
        # The browser itself logs every refused request; those were ours.
        self.page.errors = [e for e in self.page.errors if "Failed to load resource" not in e]

    def engine(self):
        self.new()
        self.send(LONG)
        self.begins()
        self.page.evaluate("location.hash = '#engine'")
        self.page.until("document.getElementById('engine').dataset.state === 'live'", "the engine view is live")
        total = "document.querySelector('[data-field=\"tokens.generated_total\"]').textContent"
        picture = "document.getElementById('page-map').toDataURL()"
        self.page.until("document.getElementById('page-map').height > 10", "the page map is drawn")
        first, map_before = self.page.evaluate(total), self.page.evaluate(picture)
        self.check(
            int(self.text("[data-field='requests.running']").replace(",", "") or 0) >= 1,
            "the request is counted as running",
        )
        self.shoot("desktop-engine")
        self.page.until(f"{total} !== {json.dumps(first)}", "the generated tokens count up", 10)
        self.page.until(f"{picture} !== {json.dumps(map_before)}", "the page map changes", 20)
        self.settle(2)
        shares = self.page.evaluate(
            "['unshared', 'shared', 'cached', 'empty', 'pages'].map(n => Number(document.querySelector(`[data-field='kv.${n}']`).textContent.replaceAll(',', '')))"
        )
        self.check(min(shares) >= 0 and sum(shares[:4]) == shares[4], f"every page is counted once: {shares}")
        dashes = self.page.evaluate(
            "[...document.querySelectorAll('[data-field]')].filter(e => e.textContent === '–').map(e => e.dataset.field)"
        )
        self.check(not dashes, f"every field has a value (missing: {dashes})")
        self.check(
            self.text("#step-readout") != "no steps yet"
            and self.page.evaluate("document.querySelector('.step-chart .decode').getAttribute('d').length") > 0,
            "steps are drawn",
        )
        self.check(
            self.page.evaluate("document.querySelectorAll('#kernel-list li:not(.none)').length") > 0,
            "kernels are listed",
        )
        self.page.scheme("dark")
        self.settle()
        self.shoot("desktop-engine-dark")
        self.page.size(1440, 480)
        polls = lambda: len([u for u in self.page.requested if u.endswith("engine/state")])  # noqa: E731
        self.page.evaluate("location.hash = '#chat'")
        self.settle(1)
        before = polls()
        self.settle(1.5)
        self.check(polls() == before, "nothing is read while the view is hidden")
        longer = "(s => s.scrollHeight - s.clientHeight > 300)(document.getElementById('scroller'))"
        for _ in range(4):
            self.page.until(f"{longer} || !document.querySelector('.streaming')", "the answer fills the screen", 120)
            if not self.page.evaluate(longer):
                # This one was short; the next one follows it.
                self.send(LONG)
                self.begins()
        left = "(s => s.scrollHeight - s.scrollTop - s.clientHeight)(document.getElementById('scroller'))"
        self.check(self.page.evaluate(left) < 60, "the chat follows the answer")
        self.page.evaluate("document.getElementById('scroller').scrollTop -= 200")
        self.settle(0.7)
        self.check(
            self.page.evaluate(left) > 150 and not self.page.evaluate("document.getElementById('to-latest').hidden"),
            "scrolling up lets go of it",
        )
        self.page.click("#to-latest")
        self.settle(0.3)
        self.check(self.page.evaluate(left) < 60, "the arrow goes back to it")
        self.page.size(1440, 900)
        self.page.key("Escape")
        self.page.until("!document.querySelector('.streaming')", "Esc stops", 5)

    def keys(self):
        self.page.evaluate("document.activeElement.blur()")
        self.page.key("?")
        self.check(self.page.evaluate("document.getElementById('help').open"), "? shows the keys")
        self.shoot("desktop-help-dark")
        self.page.key("Escape")
        self.page.until("!document.getElementById('help').open", "Esc closes the keys")
        self.page.evaluate("document.activeElement.blur()")
        self.page.key("/")
        self.check(
            self.page.evaluate("document.activeElement.id") == "draft"
            and self.page.evaluate("document.getElementById('draft').value") == "",
            "/ goes to the message field",
        )
        self.page.key("Enter", shift=True)
        self.check(self.page.evaluate("document.getElementById('draft').value") == "\n", "Shift+Enter starts a line")
        self.page.evaluate("document.execCommand('selectAll') && document.execCommand('delete')")

    def sizes(self):
        fits = "document.documentElement.scrollWidth <= innerWidth && [...document.querySelectorAll('.bar *, .composer *, .panel')].every(e => e.getBoundingClientRect().right <= innerWidth + 1)"
        self.page.size(1720, 1000)
        self.page.until(
            "document.getElementById('engine').dataset.state === 'live'", "both views side by side are live"
        )
        self.settle(2)
        self.check(
            self.page.evaluate(
                "document.getElementById('chat').offsetWidth > 500 && document.getElementById('engine').offsetWidth > 600"
            ),
            "wide screens show both views",
        )
        self.shoot("wide-dark")
        self.page.scheme("light")
        self.settle()
        self.shoot("wide-light")
        self.page.size(360, 740, phone=True, scale=2)
        self.settle()
        self.check(self.page.evaluate(fits), "the chat fits 360 px")
        self.shoot("phone-chat")
        self.page.click("#open-conversations")
        self.settle()
        self.shoot("phone-conversations")
        self.page.key("Escape")
        self.page.evaluate("location.hash = '#engine'")
        self.page.until(
            "document.getElementById('engine').dataset.state === 'live'", "the engine view is live on a phone"
        )
        self.settle(1)
        self.check(self.page.evaluate(fits), "the engine view fits 360 px")
        self.shoot("phone-engine")

    def console(self):
        for error in self.page.errors:
            self.check(False, f"console: {error}")
        outside = [u for u in self.page.requested if not u.startswith((self.base, "data:", "about:", "blob:"))]
        self.check(not outside, f"nothing is asked of other hosts {outside[:3]}")

    def run(self):
        parts = [
            self.first_sight,
            self.stream,
            self.stop,
            self.again_and_edit,
            self.settings,
            self.markdown,
            self.failures,
            self.engine,
            self.keys,
            self.sizes,
            self.console,
        ]
        for part in parts:
            try:
                part()
            except Failed as failure:
                self.check(False, f"{part.__name__}: {failure}")
                self.shoot(f"fault-{part.__name__}")
        self.page.close()
        return self.faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("pictures")
    parser.add_argument("--key", default="")
    parser.add_argument("--chromium")
    given = parser.parse_args()
    faults = Test(given.base, given.pictures, given.key, given.chromium).run()
    print(f"{len(faults)} faults, pictures in {given.pictures}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
