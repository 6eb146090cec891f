"""200 clients at once: no error but 429, no growth of memory, and not a token lost or made twice."""

import asyncio
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import time

from serving import Server, given

CLIENTS = 200
MEGABYTE = 1 << 20
MOST_GROWTH = 50 * MEGABYTE

# Pages of the KV cache become resident when they are first used: a small pool is all in use after the warm-up.
FLAGS = ["--kv-memory", "64M"]

WORDS = "the quick brown fox jumps over a lazy dog while seven ships sail past an old lighthouse under grey morning skies".split()


def request(source):
    """A prompt of 3 to 40 words, most of them short, and an answer of 2 to 16 tokens. Chats begin alike, as system prompts do."""
    words = source.choices(WORDS, k=source.choice([3, 5, 8, 13, 40]))
    body = {
        "max_tokens": source.randint(2, 16),
        "temperature": source.choice([0, 0.8]),
        "seed": source.randrange(1000),
        "stream": source.random() < 0.5,
    }
    if body["stream"]:
        body |= {"stream_options": {"include_usage": True}, "return_token_ids": True}
    if source.random() < 0.5:
        return "/v1/completions", body | {"prompt": " ".join(words)}
    return "/v1/chat/completions", body | {"messages": [{"role": "user", "content": " ".join(words)}]}


class Counts:
    def __init__(self):
        self.answers = self.refused = self.left = self.tokens = 0
        self.errors = []
        self.first_token = []
        self.whole = []


class Client:
    """Speaks HTTP by hand over one connection that it keeps, so that the load costs little beside what it loads."""

    def __init__(self, server, seed, counts, leaves=False):
        self.address = server.address
        self.source = random.Random(seed)
        self.counts = counts
        self.leaves = leaves
        self.connection = None

    async def run(self, until):
        while time.monotonic() < until:
            try:
                await self.ask()
            except (OSError, asyncio.IncompleteReadError, AssertionError) as error:
                self.counts.errors.append(repr(error))
                self.close()
        self.close()

    def close(self):
        if self.connection:
            self.connection[1].close()
        self.connection = None

    async def ask(self):
        path, body = request(self.source)
        text = json.dumps(body).encode()
        self.connection = self.connection or await asyncio.open_connection(*self.address)
        reader, writer = self.connection
        started = time.monotonic()
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode()
            + text
        )
        if self.leaves and self.source.random() < 0.6:
            await asyncio.sleep(self.source.random())
            self.counts.left += 1
            return self.close()
        status, headers = await head(reader)
        if status == 429:
            await reader.readexactly(int(headers["content-length"]))
            self.counts.refused += 1
            return await asyncio.sleep(float(headers["retry-after"]))
        assert status == 200, (status, path, body)
        if body["stream"]:
            await self.events(reader, body, started)
        else:
            answer = json.loads(await reader.readexactly(int(headers["content-length"])))
            self.counts.tokens += answer["usage"]["completion_tokens"]
        if self.connection:
            self.counts.answers += 1
            self.counts.whole.append(time.monotonic() - started)

    async def events(self, reader, body, started):
        counted, usage, done, first = 0, None, False, None
        leaves_after = self.source.randint(1, body["max_tokens"]) if self.leaves else None
        async for event in chunks(reader):
            for line in event.splitlines():
                if line == "data: [DONE]":
                    done = True
                elif line.startswith("data: "):
                    value = json.loads(line[6:])
                    assert "error" not in value, value
                    usage = value.get("usage") or usage
                    counted += sum(len(choice.get("token_ids") or []) for choice in value["choices"])
                    first = first or (counted and time.monotonic() - started)
            if leaves_after and counted >= leaves_after:
                self.counts.left += 1
                return self.close()
        assert done and usage["completion_tokens"] == counted, (done, usage, counted)
        self.counts.tokens += counted
        self.counts.first_token.append(first)


async def head(reader):
    status = int((await reader.readline()).split()[1])
    headers = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    return status, headers


async def chunks(reader):
    """The events of a chunked body: the server sends each in a chunk of its own, or several whole ones together."""
    while size := int(await reader.readline(), 16):
        yield (await reader.readexactly(size + 2)).decode()
    await reader.readline()


def phase(server, seconds, seed, clients=CLIENTS, leaves=False):
    """So many clients for some seconds, and until their last answer has come."""
    counts = Counts()

    async def together():
        until = time.monotonic() + seconds
        await asyncio.gather(
            *(Client(server, seed * CLIENTS + number, counts, leaves).run(until) for number in range(clients))
        )

    before = server.idle()["generation_tokens_total"]
    started = time.monotonic()
    asyncio.run(together())
    counts.seconds = time.monotonic() - started
    counts.made = server.idle()["generation_tokens_total"] - before
    return counts


def main():
    seconds = 120 if given().full else 20
    # Above 0 something else was using the cores, and the speed says little.
    busy_before = os.getloadavg()[0]
    with Server(*FLAGS) as server:
        warm_up = phase(server, 1, seed=1, clients=100)
        warm = server.resident_bytes()
        load = phase(server, seconds, seed=2)
        loaded = server.resident_bytes()
        leaving = phase(server, seconds / 4, seed=3, leaves=True)
        left = server.resident_bytes()
        banner = [line.strip() for line in server.said if line.startswith(("mettle serve", "backend", "memory"))]
    record = {
        "bench": "load_200",
        "command": "cargo xtask clients load" + (" --full" if given().full else ""),
        "commit": commit(),
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.system()},
        "load_average_before": round(busy_before, 2),
        "server": banner,
        "flags": " ".join(FLAGS),
        "clients": CLIENTS,
        "seconds": round(load.seconds, 1),
        "answers": load.answers,
        "refused_with_429": load.refused,
        "other_errors": len(load.errors),
        "tokens_counted_by_clients": load.tokens,
        "tokens_counted_by_server": int(load.made),
        "tokens_per_second": round(load.tokens / load.seconds, 1),
        "first_token_seconds": spread(load.first_token),
        "answer_seconds": spread(load.whole),
        "resident_bytes_after_warm_up": warm,
        "resident_bytes_after_load": loaded,
        "leaving_clients": {
            "seconds": round(leaving.seconds, 1),
            "left": leaving.left,
            "answers": leaving.answers,
            "other_errors": len(leaving.errors),
            "resident_bytes_after": left,
        },
    }
    text = json.dumps(record, indent=2)
    print(text, flush=True)
    os.makedirs(given().out, exist_ok=True)
    with open(os.path.join(given().out, "load_200.json"), "w") as file:
        file.write(text + "\n")
    faults = [*warm_up.errors, *load.errors, *leaving.errors]
    assert not faults, f"{len(faults)} errors, such as {faults[:3]}"
    assert load.answers >= CLIENTS, "not every client got an answer"
    assert load.tokens == load.made, f"clients counted {load.tokens} tokens, the server {load.made}"
    assert leaving.left >= CLIENTS / 4, "hardly anybody left"
    assert max(loaded, left) - warm < MOST_GROWTH, f"resident memory grew from {warm} to {loaded} and {left} bytes"


def spread(values):
    cuts = statistics.quantiles(values, n=20)
    return {"median": round(cuts[9], 3), "p95": round(cuts[18], 3)}


def commit():
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()


def processor():
    if not os.path.exists("/proc/cpuinfo"):
        return platform.processor()
    with open("/proc/cpuinfo") as info:
        return re.search(r"model name\s+: (.*)", info.read())[1]


if __name__ == "__main__":
    sys.exit(main())
