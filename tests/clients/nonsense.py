"""Bodies and bytes that nobody should send: a 4xx or an answer, never a failure of ours, and no memory left behind."""

import concurrent.futures
import http.client
import random
import socket
import threading
import time
import unittest

import serving
from serving import Server, given
from spoilt_bodies import BODIES, MESSAGES, spoilt

# A body that lost its max_tokens runs to the end of the context: here that is near.
CONTEXT = 96
MEGABYTE = 1 << 20
# A head that is not whole after this time ends its connection; the server's own limit is 30 s.
HEAD_SECONDS = 30


def setUpModule():
    global server, answer_before, trickle
    server = Server("--max-model-len", str(CONTEXT))
    unittest.addModuleCleanup(server.close)
    answer_before = normal_answer()
    trickle = Trickle()


def normal_answer():
    status, answer = server.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 12, "temperature": 0})
    assert status == 200, (status, answer)
    return answer["choices"]


class Nonsense(unittest.TestCase):
    """Seeded, so that a failure can be had again: it names the route and the body."""

    def tearDown(self):
        server.idle()
        self.assertEqual(normal_answer(), answer_before)

    def test_spoilt_bodies_are_answered_and_leave_no_memory_behind(self):
        count = 12000 if given().full else 1200
        self.spoil(count // 2, seed=1)
        warm = server.resident_bytes()
        self.spoil(count, seed=2)
        server.idle()
        grown = server.resident_bytes() - warm
        print(
            f"{count * 3 // 2} spoilt bodies; resident memory {warm // MEGABYTE} MB, then {grown / MEGABYTE:+.1f} MB",
            flush=True,
        )
        self.assertLess(grown, 50 * MEGABYTE)

    def spoil(self, count, seed):
        workers = 6

        def work(worker):
            source = random.Random(seed * 1000 + worker)
            connection = http.client.HTTPConnection(*server.address, timeout=60)
            statuses = {}
            for _ in range(count // workers):
                path = source.choice(list(BODIES))
                body = spoilt(source.choice(BODIES[path]), source)
                try:
                    connection.request("POST", path, body, {"Content-Type": "application/json"})
                    answer = connection.getresponse()
                    text = answer.read()
                except (http.client.HTTPException, OSError) as error:
                    raise AssertionError(f"{path} {body!r}: {error!r}") from error
                if answer.status >= 500 or b'"code":500' in text:
                    raise AssertionError(f"{path} {body!r}: {answer.status} {text[:500]!r}")
                statuses[answer.status] = statuses.get(answer.status, 0) + 1
            return statuses

        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            seen = list(pool.map(work, range(workers)))
        # Were all refused, nothing behind the first check would have been reached.
        self.assertGreater(sum(statuses.get(200, 0) for statuses in seen), count // 20)
        self.assertGreater(sum(statuses.get(400, 0) for statuses in seen), count // 4)

    def test_bytes_that_are_no_json(self):
        for path in BODIES:
            for body in [
                b"",
                b"\0",
                b"{",
                b"[]",
                b"null",
                b"3",
                b'"x"',
                b'{"a":',
                b"\xff\xfe",
                b'{"prompt": "\xc3\x28"}',
                b'{"prompt": "\\ud800"}',
                b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
                b'{"max_tokens": 1e400}',
                b'{"temperature": NaN}',
                b"[" * 60_000,
                b'{"a":' * 60_000,
                b'{"prompt": "a", "prompt": "b", "max_tokens": 1, "max_tokens": -1}',
            ]:
                with self.subTest(path=path, body=body[:60]):
                    status, answer = server.post(path, body)
                    self.assertIn(status, (200, 400), answer)

    def test_requests_that_are_no_http(self):
        for text in [
            b"\r\n\r\n",
            b"\0" * 100,
            b"GET\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: " + b"b" * 70_000 + b"\r\n\r\n",
            b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        ]:
            with self.subTest(text[:60]):
                stream = socket.create_connection(server.address, 60)
                try:
                    stream.sendall(text)
                    stream.shutdown(socket.SHUT_WR)
                    answer = b""
                    while part := stream.recv(4096):
                        answer += part
                except OSError:
                    # Cut off while it was still sending is an answer too.
                    answer = b""
                stream.close()
                self.assertNotIn(b" 500 ", answer[:20])
                self.assertNotIn(b"root:", answer)
                if answer and not text.startswith(b"PRI"):
                    self.assertRegex(answer, rb"^HTTP/1\.[01] (200|4\d\d|505) ")


class Trickles(unittest.TestCase):
    def test_heads_that_trickle_are_cut_off(self):
        trickle.join()
        self.assertEqual(trickle.left_open, 0, "connections stay open")
        self.assertGreater(trickle.seconds, HEAD_SECONDS / 2, "slow clients are given no time at all")


class Trickle(threading.Thread):
    """Clients that send a byte a second of a head, beside all the other tests: it takes half a minute."""

    def __init__(self):
        super().__init__(daemon=True)
        self.start()

    def run(self):
        started = time.monotonic()
        streams = [socket.create_connection(server.address, 60) for _ in range(100)]
        text = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        for second in range(HEAD_SECONDS + 10):
            streams = [stream for stream in streams if not has_ended(stream, text[second : second + 1])]
            if not streams:
                break
            time.sleep(1)
        self.left_open = len(streams)
        self.seconds = time.monotonic() - started


def has_ended(stream, more):
    """Sends one byte more, and says whether the server has closed the connection."""
    stream.settimeout(0)
    try:
        stream.sendall(more)
        while stream.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    stream.close()
    return True


if __name__ == "__main__":
    serving.run_tests()
