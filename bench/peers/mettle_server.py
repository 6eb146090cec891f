"""Owns a `mettle serve` of its own: starts it on a free port, asks it, ends it; and which commit a binary was built from."""
import http.client
import json
import re
import subprocess
import time
from pathlib import Path

from engines import ask

TINY = Path(__file__).resolve().parents[2] / "fixtures" / "models" / "llama"

START_SECONDS = 120


def commit(binary):
    """Records carry it; a bench of a tiny model is what says it in no time."""
    lengths = ["--input-len", 1, "--output-len", 2, "--repeats", 1]
    return ask(binary, "bench", "latency", "-m", TINY, *lengths, "--device", "cpu", "--json")["commit"]


class Server:
    """With `with`: ended when the block is left. What it printed is in the error if it does not start."""

    def __init__(self, binary, model, *flags):
        self.command = [binary, "serve", str(model), "--port", "0", "--device", "cpu", *map(str, flags)]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = []
        for line in self.process.stdout:
            said.append(line.strip())
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
                self.connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=600)
                self._wait()
                return self
        self.process.wait()
        raise SystemExit(f"mettle serve ended with code {self.process.returncode}: {(said or ['nothing said'])[-1]}")

    def __exit__(self, *_):
        self.connection.close()
        self.process.terminate()
        self.process.communicate()

    def _wait(self):
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                self.connection.request("GET", "/health")
                self.connection.getresponse().read()
                return
            except OSError:
                self.connection.close()
                if time.monotonic() > until:
                    self.process.terminate()
                    raise SystemExit(f"mettle serve was not ready after {START_SECONDS} s") from None
                time.sleep(0.1)

    def post(self, path, body):
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path} answered {answer.status}: {content.decode()[:500]}")
        return json.loads(content)
