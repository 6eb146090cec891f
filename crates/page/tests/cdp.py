"""Owns a headless Chromium, driven over a pipe. Needs nothing beyond Python and Chromium."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Failed(Exception):
    pass


def find_chromium(given=None):
    for name in [given, os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "chrome"]:
        path = name and shutil.which(name)
        if path:
            return path
    raise Failed("no Chromium found: install it, or name it with --chromium")


class Page:
    """One browser with one tab. `errors` collects what a person would find in the console."""

    def __init__(self, chromium=None):
        self.profile = tempfile.mkdtemp(prefix="page-test-")
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-quic",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            f"--user-data-dir={self.profile}",
            "--remote-debugging-pipe",
        ]
        # Chromium reads commands from descriptor 3 and writes to 4.
        quoted = 'exec "$@" 3<&%d 4>&%d' % (to_browser, from_browser)
        self.process = subprocess.Popen(
            ["bash", "-c", quoted, "sh", find_chromium(chromium), *flags, "about:blank"],
            pass_fds=[to_browser, from_browser],
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.number = 0
        self.session = None
        self.errors = []
        self.requested = []
        self.replies = []
        self.answers = {}
        deadline = time.time() + 30
        while True:
            targets = self.call("Target.getTargets")["targetInfos"]
            pages = [t for t in targets if t["type"] == "page"]
            if pages:
                break
            if time.time() > deadline:
                raise Failed("Chromium opened no page")
            time.sleep(0.1)
        self.session = self.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")

    # The wire

    def call(self, method, **params):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        deadline = time.time() + 60
        while number not in self.answers:
            self.pump(max(0, deadline - time.time()))
            if time.time() > deadline:
                raise Failed(f"{method}: no answer from Chromium")
        answer = self.answers.pop(number)
        if "error" in answer:
            raise Failed(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    def pump(self, seconds):
        ready, _, _ = select.select([self.read_end], [], [], seconds)
        if not ready:
            return
        part = os.read(self.read_end, 1 << 20)
        if not part:
            raise Failed("Chromium has ended")
        self.buffer += part
        *whole, self.buffer = self.buffer.split(b"\0")
        for text in whole:
            message = json.loads(text)
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.heard(message["method"], message["params"])

    def heard(self, method, params):
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])
        elif method == "Fetch.requestPaused":
            self.reply(params)

    def reply(self, params):
        self.number += 1
        message = {"id": self.number, "sessionId": self.session, "params": {"requestId": params["requestId"]}}
        if self.replies:
            status, headers, body = self.replies.pop(0)
            message["method"] = "Fetch.fulfillRequest"
            message["params"] |= {
                "responseCode": status,
                "responseHeaders": [{"name": k, "value": v} for k, v in headers.items()],
                "body": base64.b64encode(body.encode()).decode(),
            }
        else:
            message["method"] = "Fetch.continueRequest"
        os.write(self.write_end, json.dumps(message).encode() + b"\0")

    def answer_instead(self, pattern, *replies):
        """The next requests to `pattern` get these (status, headers, body) instead of the server's."""
        self.replies = list(replies)
        self.call("Fetch.enable", patterns=[{"urlPattern": pattern}])

    def answer_no_more(self):
        self.call("Fetch.disable")

    # What a person does

    def size(self, width, height, phone=False, scale=1):
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)

    def scheme(self, name, reduced_motion=False):
        self.call(
            "Emulation.setEmulatedMedia",
            features=[
                {"name": "prefers-color-scheme", "value": name},
                {"name": "prefers-reduced-motion", "value": "reduce" if reduced_motion else "no-preference"},
            ],
        )

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'", "the page loads")

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise Failed(f"{expression}: {result['exceptionDetails'].get('exception', {}).get('description')}")
        return result["result"].get("value")

    def until(self, expression, what, seconds=30):
        deadline = time.time() + seconds
        while True:
            try:
                value = self.evaluate(f"!!({expression})")
            except Failed:
                # The page may be between two documents.
                value = None
            if value:
                return
            if time.time() > deadline:
                raise Failed(f"after {seconds} s still not: {what}")
            time.sleep(0.05)

    def key(self, key, shift=False):
        codes = {"Enter": 13, "Escape": 27, "ArrowUp": 38, "Tab": 9}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        common = {
            "key": key,
            "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper())),
            "modifiers": 8 if shift else 0,
        }
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, selector):
        box = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;"
            " e.scrollIntoView({block: 'nearest'}); const b = e.getBoundingClientRect();"
            " return [b.left + b.width / 2, b.top + b.height / 2, b.width]; })()"
        )
        if not box or box[2] == 0:
            raise Failed(f"nothing to click at {selector}")
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"]:
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def shoot(self, path):
        picture = self.call("Page.captureScreenshot", format="png")
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture["data"]))

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (Failed, OSError):
            self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.profile, ignore_errors=True)
