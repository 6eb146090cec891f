"""Owns a running `mettle serve` for the drivers: its start, address, metrics, memory and end."""

import argparse
import functools
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.parse

MODEL = "smollm2:135m"

# Far more than it takes on a slow machine; less than a person waits for.
START_SECONDS = 60


@functools.cache
def given():
    """What the driver was called with: DRIVER BINARY [--full] [--out FOLDER] [TEST...]"""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("binary", help="the mettle program to test")
    parser.add_argument("--full", action="store_true", help="what takes longer than a test run should")
    parser.add_argument("--out", default="target/clients", help="where records and pictures go")
    parser.add_argument("tests", nargs="*", help="only these tests")
    return parser.parse_args()


class Timed(unittest.TextTestResult):
    """A line for each test, with its time: what a test run may take is a budget."""

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        failed = any(test is (getattr(t, "test_case", None) or t) for t, _ in self.failures + self.errors)
        name = test.id().removeprefix("__main__.")
        print(f"{'FAILED' if failed else 'ok':6} {time.monotonic() - self.started:6.1f} s  {name}", flush=True)


def run_tests():
    """Runs the test classes of the driver, or those that were named."""
    # Sockets left to the collector are warned about; some belong to the clients under test.
    runner = unittest.TextTestRunner(resultclass=Timed, verbosity=0, warnings="ignore")
    result = unittest.main(argv=[sys.argv[0], *given().tests], exit=False, testRunner=runner).result
    sys.exit(not result.wasSuccessful())


class Server:
    """One server process, on a port that the system chooses if none is given. Ends with its `with` block, whatever happened in it."""

    def __init__(self, *flags, port=0, environment=None, wait=True):
        # Stated, so that the same backend is tested wherever the drivers run.
        command = [given().binary, "serve", "--port", str(port), "--device", "cpu", "--strict", *flags]
        self.said = []
        self.url = None
        self.ready = threading.Event()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **(environment or {})},
        )
        threading.Thread(target=self._listen, daemon=True).start()
        if wait:
            self.wait()

    def _listen(self):
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.match(r"page +(http://\S+?)/?$", line):
                self.url = found[1]
            if line.startswith("try "):
                self.ready.set()
        self.ready.set()

    def wait(self):
        self.ready.wait(START_SECONDS)
        if not self.url:
            self.close()
            raise AssertionError("the server did not start:\n" + "".join(self.said))
        deadline = time.monotonic() + START_SECONDS
        while self.get("/health")[0] != 200:
            assert time.monotonic() < deadline, "the server is not healthy"
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind not in (None, SystemExit):
            print("the server said:\n" + "".join(self.said[-40:]), file=sys.stderr)
        self.close()

    def close(self):
        self.process.kill()
        self.process.wait()

    def stop(self, seconds=40):
        """Asks it to end, and gives its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    @property
    def address(self):
        parts = urllib.parse.urlsplit(self.url)
        return parts.hostname, parts.port

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, body, seconds=120):
        """A body that is not bytes is written as JSON. Gives the status and what was answered, read as JSON if it is."""
        return self.request("POST", path, body, seconds)

    def request(self, method, path, body=None, seconds=120):
        connection = http.client.HTTPConnection(*self.address, timeout=seconds)
        try:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            if answer.getheader("Content-Type", "").startswith("application/json"):
                return answer.status, json.loads(text)
            return answer.status, text.decode()
        finally:
            connection.close()

    def metrics(self):
        """Every metric under our prefix, summed over its labels."""
        values = {}
        for line in self.get("/metrics")[1].splitlines():
            if found := re.match(r"mettle:(\w+)(?:\{.*\})? (\S+)$", line):
                values[found[1]] = values.get(found[1], 0) + float(found[2])
        return values

    def idle(self, seconds=20):
        """Waits until nothing runs and nothing waits; a client that left must not keep the engine busy."""
        deadline = time.monotonic() + seconds
        while True:
            metrics = self.metrics()
            busy = metrics["num_requests_running"], metrics["num_requests_waiting"]
            if busy == (0, 0):
                return metrics
            assert time.monotonic() < deadline, f"after {seconds} s still {busy} requests running and waiting"
            time.sleep(0.05)

    def resident_bytes(self):
        said = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, text=True, check=True
        )
        return int(said.stdout) * 1024
