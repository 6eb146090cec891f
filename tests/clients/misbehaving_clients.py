"""Clients that leave or stall: nothing is left over of them, and the next one is served as if nothing was."""

import concurrent.futures
import contextlib
import json
import resource
import socket
import struct
import time
import unittest

import serving
from serving import MODEL, Server, given

CONTEXT = 256
SLOTS = 4

# A client that takes nothing for this long is gone.
WRITE_SECONDS = 60

MESSAGES = [{"role": "user", "content": "Tell a story about a fox and a lighthouse."}]


def setUpModule():
    global server, answer_before
    server = Server("--max-model-len", str(CONTEXT), "--max-num-seqs", str(SLOTS))
    unittest.addModuleCleanup(server.close)
    answer_before = normal_answer()


def normal_answer():
    status, answer = server.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 12, "temperature": 0})
    assert status == 200, (status, answer)
    return answer["choices"]


def long_request(**more):
    """As long as the context allows: nobody ends it but the client who leaves."""
    return json.dumps({"messages": MESSAGES, "ignore_eos": True, **more}).encode()


def head(path, length, *more):
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {length}",
        *more,
        "",
        "",
    ]
    return "\r\n".join(lines).encode()


def connect(narrow=False):
    """A narrow connection holds some 50 KB between the two; else the system would take a whole answer for the reader."""
    stream = socket.socket()
    if narrow:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    stream.settimeout(60)
    stream.connect(server.address)
    return stream


def reset(stream):
    """Leaves without a word: the other side learns of it by a reset."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()


def read_until(stream, mark):
    seen = b""
    while mark not in seen:
        part = stream.recv(4096)
        assert part, seen
        seen += part
    return seen


def all_served(test):
    """After whatever happened: nothing is left over, and the next client gets what the first one got."""
    server.idle()
    test.assertEqual(normal_answer(), answer_before)
    test.assertIsNone(server.process.poll())


class ClientsThatLeave(unittest.TestCase):
    ASKED = {
        "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 150},
        "/v1/completions": {"prompt": "Once upon", "max_tokens": 150},
        "/v1/responses": {"input": "Tell a story.", "max_output_tokens": 150},
        "/v1/messages": {"model": MODEL, "messages": MESSAGES, "max_tokens": 150},
    }

    def tearDown(self):
        all_served(self)

    def bodies(self, **more):
        for path, body in self.ASKED.items():
            yield path, json.dumps({**body, "ignore_eos": True, **more}).encode()

    def leaving(self, stream, number):
        """In turn: says goodbye, resets, and stops sending but stays."""
        match number % 3:
            case 0:
                stream.close()
            case 1:
                reset(stream)
            case 2:
                stream.shutdown(socket.SHUT_WR)
                self.addCleanup(stream.close)

    def test_before_anything_and_inside_the_head(self):
        whole = head("/v1/chat/completions", 10)
        for number, length in enumerate([0, 1, 10, len(whole) // 2, len(whole) - 1] * 3):
            stream = connect()
            stream.sendall(whole[:length])
            self.leaving(stream, number)

    def test_before_and_inside_the_body(self):
        for path, body in self.bodies():
            for number, length in enumerate([0, 1, len(body) // 2, len(body) - 1] * 3):
                stream = connect()
                stream.sendall(head(path, len(body)) + body[:length])
                self.leaving(stream, number)

    def test_before_the_first_token(self):
        for stream_it in [False, True]:
            for path, body in self.bodies(stream=stream_it):
                for number in range(3):
                    stream = connect()
                    stream.sendall(head(path, len(body)) + body)
                    self.leaving(stream, number)

    def test_after_the_head_of_the_answer_and_mid_stream(self):
        for path, body in self.bodies(stream=True):
            for number, mark in enumerate([b"\r\n\r\n", b"data:", b"data:", b"\r\n\r\n", b"\r\n\r\n", b"data:"]):
                stream = connect()
                stream.sendall(head(path, len(body)) + body)
                read_until(stream, mark)
                if number > 2:
                    read_until(stream, b"data:")
                self.leaving(stream, number)

    def test_while_waiting_in_the_queue(self):
        before = server.metrics()
        streams = []
        body = long_request()
        for _ in range(SLOTS + 12):
            stream = connect()
            stream.sendall(head("/v1/chat/completions", len(body)) + body)
            streams.append(stream)
        deadline = time.monotonic() + 20
        while server.metrics()["num_requests_waiting"] < 12:
            self.assertLess(time.monotonic(), deadline, "nothing waits")
            time.sleep(0.02)
        # Those at the end of the queue first, then those that run.
        for number, stream in enumerate(reversed(streams)):
            stream.close() if number % 2 else reset(stream)
        after = server.idle()
        made = after["generation_tokens_total"] - before["generation_tokens_total"]
        self.assertLess(made, len(streams) * CONTEXT / 2, "answers were made for clients that had left")

    def test_in_the_midst_of_others_whose_answers_stay_the_same(self):
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            staying = [pool.submit(normal_answer) for _ in range(12)]
            for _ in range(20):
                stream = connect()
                body = long_request(stream=True)
                stream.sendall(head("/v1/chat/completions", len(body)) + body)
                read_until(stream, b"data:")
                reset(stream)
            for answer in staying:
                self.assertEqual(answer.result(), answer_before)


class ClientsThatStall(unittest.TestCase):
    def tearDown(self):
        all_served(self)

    def test_readers_that_stall_hold_up_nobody_and_lose_nothing(self):
        # Alternatives make an answer larger than what the system keeps for a reader: the server has to wait.
        body = {
            "messages": MESSAGES,
            "max_tokens": 80,
            "ignore_eos": True,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": 20,
        }
        status, whole = server.post("/v1/chat/completions", body)
        self.assertEqual(status, 200)
        body = json.dumps({**body, "stream": True}).encode()
        stalled = [connect(narrow=True) for _ in range(3)]
        for stream in stalled:
            stream.sendall(head("/v1/chat/completions", len(body)) + body)
        seen = [read_until(stream, b"data:") for stream in stalled]
        for _ in range(3):
            self.assertEqual(normal_answer(), answer_before)
        # The engine is done with them long before they are.
        server.idle()
        # With the small buffer the system would ask the reader again and again, ever more rarely, whether it has room.
        stalled[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        seen[0] += read_until(stalled[0], b"[DONE]\n\n\r\n")
        events = [
            json.loads(line[6:]) for line in dechunked(seen[0]).decode().splitlines() if line.startswith("data: {")
        ]
        choices = [event["choices"][0] for event in events]
        self.assertEqual(
            "".join(choice["delta"].get("content") or "" for choice in choices),
            whole["choices"][0]["message"]["content"],
        )
        parts = [token for choice in choices if choice["logprobs"] for token in choice["logprobs"]["content"]]
        self.assertEqual(parts, whole["choices"][0]["logprobs"]["content"])
        reset(stalled[1])
        if given().full:
            # The last one is cut off by the server, which leaves its answer without an end.
            time.sleep(WRITE_SECONDS + 5)
            stalled[2].settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                while part := stalled[2].recv(4096):
                    seen[2] += part
            self.assertNotIn(b"[DONE]", seen[2])
        stalled[2].close()


class ClientsThatSayNothing(unittest.TestCase):
    """More of them than the server takes connections; each new one pushes out the one that was silent longest."""

    COUNT = 10_000

    def tearDown(self):
        all_served(self)

    def test_ten_thousand_idle_connections_keep_nobody_waiting(self):
        open_files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.assertGreater(most, self.COUNT + 100, "the system allows this test too few open files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (open_files, most))
        memory_before = server.resident_bytes()
        silent = []
        self.addCleanup(lambda: [stream.close() for stream in silent])
        begun = head("/v1/chat/completions", 100)
        longest = 0.0
        for number in range(self.COUNT):
            stream = connect()
            # In turn: nothing at all, a part of the head, a part of the body.
            stream.sendall([b"", begun[: len(begun) // 2], begun + b"{"][number % 3])
            silent.append(stream)
            if number % 1000 == 999:
                start = time.monotonic()
                self.assertEqual(normal_answer(), answer_before)
                longest = max(longest, time.monotonic() - start)
        # The limit on silence is 30 seconds: nobody waited for that.
        self.assertLess(longest, 10)
        self.assertLess(server.resident_bytes() - memory_before, 64 << 20)


def dechunked(answer):
    body = answer.split(b"\r\n\r\n", 1)[1]
    text = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        text, body = text + rest[:length], rest[length + 2 :]
    return text


if __name__ == "__main__":
    serving.run_tests()
