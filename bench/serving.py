#!/usr/bin/env python3
"""Serving on one machine: throughput by concurrency, and how much the server adds to bare prefill.

    cargo build --release && python3 bench/serving.py target/release/mettle > bench/records/serving.json

Starts `mettle serve` with the default model and puts load on it with `mettle bench serve`: 256 tokens in, 64 out, random
prompts. Then `mettle bench latency` (no server) and a load of one request at a time take turns, and the medians of their
times to the first token are compared. Nothing else should run meanwhile; the load average before is part of the record.
"""
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile

PORT = 8917
CONCURRENCIES = [1, 2, 4, 8, 16, 32]
ROUNDS = 5

binary = sys.argv[1]
load_before = os.getloadavg()[0]


def load(*flags):
    with tempfile.NamedTemporaryFile(suffix=".json") as record:
        command = [binary, "bench", "serve", "--base-url", f"http://127.0.0.1:{PORT}", "--json", record.name]
        command += ["--input-len", "256", *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.load(open(record.name))["points"]


def bare_prefill_seconds():
    command = [binary, "bench", "latency", "--input-len", "256", "--output-len", "4", "--repeats", "9", "--json"]
    run = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return 256 / run["prefill"]["median"]


server = subprocess.Popen([binary, "serve", "--port", str(PORT)], stderr=subprocess.PIPE, text=True)
banner = []
try:
    for line in server.stderr:
        banner.append(line.rstrip())
        if line.startswith("try"):
            break
    concurrencies = ",".join(map(str, CONCURRENCIES))
    points = load("--output-len", "64", "--max-concurrency", concurrencies, "--num-prompts", "64", "--warmup", "4")
    bare, served = [], []
    for round in range(ROUNDS):
        bare.append(bare_prefill_seconds())
        flags = ["--output-len", "4", "--max-concurrency", "1", "--num-prompts", "16", "--seed", str(1000 + round)]
        served.append(load(*flags)[0])
finally:
    server.terminate()
    server.wait(timeout=30)

with open("/proc/cpuinfo") as info:
    processor = re.search(r"model name\s+: (.*)", info.read())[1]
commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
KEPT = ["max_concurrency", "completed", "failed", "request_throughput", "output_throughput", "total_token_throughput"]
KEPT += [f"{which}_{what}_ms" for what in ("ttft", "tpot", "e2el") for which in ("median", "p99")]
bare_ms = statistics.median(bare) * 1000
served_ms = statistics.median(point["median_ttft_ms"] for point in served)
record = {
    "bench": "serving",
    "commit": commit,
    "machine": {"processor": processor, "cores": os.cpu_count(), "system": platform.platform()},
    "load_average_before": load_before,
    "server": banner[:3],
    "load": "256 random tokens in, 64 out, 64 requests a point",
    "by_concurrency": [{name: point[name] for name in KEPT} for point in points],
    "first_token": {
        "bare_prefill_ms": bare_ms,
        "served_ms": served_ms,
        "ratio": served_ms / bare_ms,
        "bare_prefill_ms_all": [seconds * 1000 for seconds in bare],
        "served_ms_all": [point["median_ttft_ms"] for point in served],
    },
}
print(json.dumps(record, indent=2))
