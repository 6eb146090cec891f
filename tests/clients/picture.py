"""Makes docs/page.png, the README's picture: a chat beside the engine view, while other requests run. Run by hand.

    python3 tests/clients/picture.py target/release/mettle --out docs

The page is drawn in Inter where the system has it (Debian: apt-get install fonts-inter).
"""

import contextlib
import http.client
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../crates/page/tests"))
from cdp import Page  # noqa: E402
from load import WORDS  # noqa: E402
from serving import Server, given  # noqa: E402

QUESTIONS = [
    "Write a Python function that checks whether a number is even.",
    "What is the capital of Germany?",
    "Write a short Python function that reverses a string.",
]
SYSTEM = "You are a sailor who knows every ship, every coast and every lighthouse of the northern sea, and you tell of them at length."
OTHERS = 8
# The charts of the engine view go back that far.
SECONDS = 60


def keep_busy(server, seed):
    """One of the other clients: prompts that begin alike, some with several answers. It ends with the server."""
    source = random.Random(seed)
    with contextlib.suppress(OSError, http.client.HTTPException):
        while True:
            words = " ".join(source.choices(WORDS, k=source.randint(5, 80)))
            body = {
                "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": words}],
                "max_tokens": source.randint(20, 120),
                "n": source.choice([1, 1, 3]),
                "temperature": 0.8,
                "ignore_eos": True,
            }
            server.post("/v1/chat/completions", body, seconds=300)
            time.sleep(source.random() * 3)


def ask(page, question):
    page.evaluate("document.getElementById('draft').focus()")
    page.type(question)
    page.key("Enter")
    page.until(
        "document.querySelector('.message.latest .markdown')?.textContent && !document.querySelector('.streaming')",
        "the answer is complete",
        300,
    )


def main():
    with Server("--kv-memory", "512M", "--max-num-seqs", "16") as server:
        until = time.monotonic() + SECONDS
        for seed in range(OTHERS):
            threading.Thread(target=keep_busy, args=(server, seed), daemon=True).start()
        page = Page()
        try:
            page.size(1600, 1070)
            page.scheme("dark")
            page.open(server.url + "/")
            page.until("document.title.endsWith('on Mettle')", "the model's name is read")
            for field, value in [("temperature", "0"), ("max_tokens", "220")]:
                page.evaluate(
                    "document.getElementById('settings').hidden && document.getElementById('open-settings').click()"
                )
                page.evaluate(f"(e => {{ e.focus(); e.select(); }})(document.getElementById('set-{field}'))")
                page.type(value)
            page.key("Escape")
            for question in QUESTIONS:
                ask(page, question)
            time.sleep(max(0, until - time.monotonic()))
            os.makedirs(given().out, exist_ok=True)
            page.shoot(os.path.join(given().out, "page.png"))
        finally:
            page.close()


if __name__ == "__main__":
    main()
