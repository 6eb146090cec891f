"""kill -9 during a download, a load and a response: the next start works, and nothing half-written is trusted."""

import hashlib
import http.client
import http.server
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import serving
from serving import MODEL, Server, given

FIXTURE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../fixtures/models/llama")
COMMIT = "0123456789abcdef"
QUESTION = {
    "messages": [{"role": "user", "content": "What is the capital of Germany?"}],
    "max_tokens": 16,
    "temperature": 0,
}


class Hub:
    """A hub on this machine with the default model's file and one small repository, which can stop in the midst of a file."""

    def __init__(self, default_model):
        small = {
            name: os.path.join(FIXTURE, name)
            for name in [
                "config.json",
                "generation_config.json",
                "tokenizer.json",
                "tokenizer_config.json",
                "model.safetensors",
            ]
        }
        self.files = {f"/owner/tiny/resolve/{COMMIT}/{name}": path for name, path in small.items()}
        self.default_model = default_model
        self.listing = {"sha": COMMIT, "siblings": [self.listed(name, path) for name, path in small.items()]}
        # (end of the path, bytes) at which answers stop and say so.
        self.stop_at = None
        self.stopped = threading.Event()
        self.go_on = threading.Event()
        self.ranges = []
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                hub.answer(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.environment = {"METTLE_HUB_ENDPOINT": f"http://127.0.0.1:{self.server.server_port}"}

    @staticmethod
    def listed(name, path):
        entry = {"rfilename": name, "size": os.path.getsize(path)}
        # As on the hub: only large files have a checksum.
        if name.endswith(".safetensors"):
            entry["lfs"] = {"sha256": digest(path)}
        return entry

    def answer(self, request):
        if request.path.startswith("/api/models/owner/tiny"):
            return self.send(request, json.dumps(self.listing).encode(), 0)
        path = (
            self.default_model
            if request.path.endswith(os.path.basename(self.default_model))
            else self.files.get(request.path)
        )
        if not path:
            return request.send_error(404)
        wanted = request.headers.get("Range", "bytes=0-")
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        self.ranges.append(start)
        with open(path, "rb") as file:
            self.send(request, file.read(), start)

    def send(self, request, contents, start):
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(contents) - 1}/{len(contents)}")
        request.send_header("Content-Length", str(len(contents) - start))
        request.end_headers()
        end = len(contents)
        if self.stop_at and request.path.endswith(self.stop_at[0]):
            end = max(start, int(self.stop_at[1] * len(contents)))
        try:
            request.wfile.write(contents[start:end])
            request.wfile.flush()
            if end < len(contents):
                self.sent = end
                self.stopped.set()
                self.go_on.wait(60)
        except OSError:
            # The one who asked was killed.
            pass

    def stop(self, name, share):
        self.stopped.clear()
        self.go_on.clear()
        self.stop_at = (name, share)

    def run_through(self):
        self.go_on.set()
        self.stop_at = None
        self.ranges.clear()


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cached_default_model():
    """The file that an earlier step has fetched."""
    said = subprocess.run([given().binary, "pull", MODEL], capture_output=True, text=True, check=True)
    path = said.stdout.strip().splitlines()[-1]
    assert os.path.isfile(path), said
    return path


def setUpModule():
    global hub, answer_before
    hub = Hub(cached_default_model())
    with Server() as server:
        answer_before = answer(server)


def answer(server):
    status, said = server.post("/v1/chat/completions", QUESTION)
    assert status == 200, said
    return said["choices"]


class Home(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.mkdtemp(prefix="mettle-kill-")
        self.addCleanup(shutil.rmtree, self.home)
        self.addCleanup(hub.run_through)
        self.environment = {**hub.environment, "METTLE_HOME": self.home}

    def files(self):
        found = [os.path.join(folder, name) for folder, _, names in os.walk(self.home) for name in names]
        return {os.path.relpath(path, self.home): path for path in found if "locks" not in path}

    def whole_files(self, name):
        return [path for path in self.files().values() if os.path.basename(path) == name]

    def command(self, *words, **more):
        environment = {**os.environ, **self.environment, **more}
        return subprocess.run([given().binary, *words], capture_output=True, text=True, env=environment, timeout=120)

    def killed_in(self, name, share, *command):
        """Starts a command and kills it when the hub has sent that share of a file and it lies on the disk."""
        hub.stop(name, share)
        process = subprocess.Popen(
            [given().binary, *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self.environment},
        )
        try:
            self.assertTrue(hub.stopped.wait(60), "the file was never asked for")
            deadline = time.monotonic() + 60
            while not any(os.path.getsize(part) >= hub.sent for part in self.whole_files(name + ".part")):
                self.assertLess(time.monotonic(), deadline, "what was sent is not written")
                time.sleep(0.02)
            self.assertIsNone(process.poll(), "it ended before it was killed")
        finally:
            process.kill()
            process.wait()
        hub.run_through()


class Download(Home):
    def test_serving_goes_on_where_the_download_was_killed(self):
        name = os.path.basename(hub.default_model)
        reached = 0
        for share in [0.02, 0.4, 0.9]:
            self.killed_in(name, share, "serve", "--port", "0")
            self.assertEqual(self.whole_files(name), [], "half a file has the name of a whole one")
            self.assertNotEqual(self.command("run", "-m", MODEL, "hello", METTLE_OFFLINE="1").returncode, 0)
            (part,) = self.whole_files(name + ".part")
            self.assertGreater(os.path.getsize(part), reached)
            reached = os.path.getsize(part)
        with Server(environment=self.environment) as server:
            self.assertEqual(answer(server), answer_before)
        self.assertEqual(hub.ranges, [reached], "what had come was fetched again")
        (place,) = self.whole_files(name)
        self.assertEqual(digest(place), digest(hub.default_model))
        self.assertEqual(self.whole_files(name + ".part"), [])

    def test_what_was_written_wrong_is_not_trusted(self):
        name = os.path.basename(hub.default_model)
        self.killed_in(name, 0.5, "pull", MODEL)
        (part,) = self.whole_files(name + ".part")
        with open(part, "r+b") as file:
            # As a file system may leave it after the power went: the length is there, the contents are not.
            file.seek(-4096, os.SEEK_END)
            file.write(bytes(4096))
        self.assertEqual(self.command("pull", MODEL).returncode, 0)
        (place,) = self.whole_files(name)
        self.assertEqual(digest(place), digest(hub.default_model))
        self.assertEqual(hub.ranges[-1], 0, "it began anew")

    def test_a_folder_is_no_model_until_all_its_files_are_there(self):
        for name, share in [
            ("config.json", 0.5),
            ("tokenizer.json", 0.5),
            ("model.safetensors", 0.0),
            ("model.safetensors", 0.7),
        ]:
            self.killed_in(name, share, "pull", "owner/tiny")
            self.assertNotIn("owner/tiny", self.command("models").stdout)
            self.assertNotEqual(
                self.command("run", "--raw", "-m", "owner/tiny", "hello", METTLE_OFFLINE="1").returncode, 0
            )
        self.assertEqual(self.command("pull", "owner/tiny").returncode, 0)
        words = ["run", "--raw", "--max-tokens", "8"]
        fetched = self.command(*words, "-m", "owner/tiny", "hello", METTLE_OFFLINE="1")
        original = self.command(*words, "-m", FIXTURE, "hello")
        self.assertEqual((fetched.returncode, fetched.stdout), (0, original.stdout))


class Load(unittest.TestCase):
    def test_a_load_that_was_killed_leaves_nothing(self):
        before = digest(hub.default_model)
        source = random.Random(1)
        for _ in range(12):
            server = Server(wait=False)
            time.sleep(source.random() * 0.4)
            server.close()
        with Server() as server:
            self.assertEqual(answer(server), answer_before)
        self.assertEqual(digest(hub.default_model), before)


class Response(unittest.TestCase):
    def test_an_answer_that_was_killed_does_not_look_whole_and_the_port_is_free_at_once(self):
        with Server() as server:
            port = server.address[1]
            whole, stream = (
                http.client.HTTPConnection(*server.address, timeout=30),
                socket.create_connection(server.address, 30),
            )
            long = json.dumps({**QUESTION, "max_tokens": 2000, "ignore_eos": True}).encode()
            whole.request("POST", "/v1/chat/completions", long, {"Content-Type": "application/json"})
            body = json.dumps({**json.loads(long), "stream": True}).encode()
            stream.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                % len(body)
                + body
            )
            seen = b""
            while seen.count(b"data: ") < 8:
                seen += stream.recv(4096)
            server.close()
            with self.assertRaises((http.client.HTTPException, OSError)):
                whole.getresponse().read()
            try:
                while part := stream.recv(4096):
                    seen += part
            except ConnectionResetError:
                pass
        self.assertNotIn(b"[DONE]", seen)
        self.assertNotIn(b'"finish_reason":"', seen)
        self.assertFalse(seen.endswith(b"0\r\n\r\n"), "the body looks complete")
        with Server(port=port) as server:
            self.assertEqual(answer(server), answer_before)


if __name__ == "__main__":
    serving.run_tests()
