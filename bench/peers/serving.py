#!/usr/bin/env python3
"""`mettle serve` next to llama-server: same file, same threads, same load, in turn.

    pip download --no-deps --no-binary llama-cpp-python llama-cpp-python && tar xf llama_cpp_python-*.tar.gz
    cmake -S llama_cpp_python-*/vendor/llama.cpp -B BUILD -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_OPENSSL=OFF \\
          -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DBUILD_SHARED_LIBS=OFF
    cmake --build BUILD --target llama-server
    python3 bench/peers/serving.py target/release/mettle MODEL.gguf BUILD/bin/llama-server

`mettle bench serve` puts the load on both: random prompts of 256 tokens, answers of 64, 16 requests under way. llama-server has
a slot for each and room for 1024 tokens in it; all else is as its makers have it. The record, if --record names one,
is written after every round, the table goes to stdout. On a busy machine the record says so and the exit code is 3.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import machine

PORT = 8937
INPUT, OUTPUT, CONCURRENCY, SLOT = 256, 64, 16, 1024
START_SECONDS = 120
KEPT = ["completed", "failed", "duration", "output_throughput", "total_token_throughput"]
KEPT += [f"{which}_{what}_ms" for what in ("ttft", "tpot", "e2el") for which in ("median", "p99")]


def say(text):
    print(text, file=sys.stderr, flush=True)


def commands(arguments):
    common = ["-m", arguments.model, "--port", PORT, "--threads", arguments.threads]
    chosen = ["--cpu-isa", arguments.isa] if arguments.isa else []
    found = {"mettle serve": [arguments.binary, "serve", *common, "--device", "cpu", *chosen]}
    if arguments.llama_server:
        slots = ["-np", CONCURRENCY, "-c", CONCURRENCY * SLOT, "--threads-batch", arguments.threads]
        found["llama-server"] = [arguments.llama_server, *common, *slots]
    return {engine: list(map(str, command)) for engine, command in found.items()}


def wait_until_ready(server):
    for _ in range(START_SECONDS * 10):
        if server.poll() is not None:
            sys.exit(f"the server ended with code {server.returncode}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5)
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    sys.exit(f"the server was not ready after {START_SECONDS} s")


def under_load(arguments, command, seed):
    """The figures of one load on a server of its own, and Mettle's commit."""
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until_ready(server)
            record = os.path.join(folder, "load.json")
            load = [arguments.binary, "bench", "serve", "--base-url", f"http://127.0.0.1:{PORT}", "--dataset", "random"]
            load += ["--input-len", INPUT, "--output-len", OUTPUT, "--max-concurrency", CONCURRENCY]
            load += ["--num-prompts", arguments.prompts, "--warmup", 2, "--seed", seed, "--json", record]
            done = subprocess.run(list(map(str, load)), capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{os.path.basename(command[0])} under load: {done.stderr.strip()}")
            with open(record) as written:
                found = json.load(written)
            point = found["points"][0]
            if point["failed"]:
                sys.exit(f"{os.path.basename(command[0])} failed {point['failed']} requests: {point['failure_messages']}")
            return point, found["commit"]
        finally:
            server.terminate()
            try:
                server.wait(timeout=30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def version(arguments):
    if not arguments.llama_server:
        return "absent: no llama-server was named; --help says how it is built"
    done = subprocess.run([arguments.llama_server, "--version"], capture_output=True, text=True)
    # The commit beside it is that of whatever repository the sources were unpacked in.
    found = re.search(r"version: \S+", done.stdout + done.stderr)
    source = f", from the source package of llama-cpp-python {arguments.llama_package}" if arguments.llama_package else ""
    return (found[0] if found else "unknown version") + source


def summary(loads, troubles):
    """Medians of the rounds and, if nothing disturbed them, how many times better Mettle's are."""
    found = {
        engine: {what: statistics.median(load[what] for load in of_engine) for what in ("output_throughput", "median_ttft_ms")}
        for engine, of_engine in loads.items()
        if of_engine
    }
    if len(found) == 2 and not troubles:
        ours, theirs = found["mettle serve"], found["llama-server"]
        found["times better"] = {
            "output_throughput": ours["output_throughput"] / theirs["output_throughput"],
            "median_ttft_ms": theirs["median_ttft_ms"] / ours["median_ttft_ms"],
        }
    return found


def table(record):
    found = record["medians"]
    busy = " (busy, no verdict)" if record["no verdict, the machine was busy"] else ""
    title = f"{CONCURRENCY} requests at a time, {record['machine']['threads']} threads{busy}"
    engines = [engine for engine in ("mettle serve", "llama-server") if engine in found]
    lines = [f"| {title} | {' | '.join(engines)} | |", "|---|" + "---|" * (len(engines) + 1)]
    for what, name, shown in (
        ("output_throughput", "output", lambda value: f"{value:.0f} tok/s"),
        ("median_ttft_ms", "first token, p50", lambda value: f"{value / 1000:.2f} s"),
    ):
        better = f"{found['times better'][what]:.1f}x" if "times better" in found else ""
        lines.append(f"| {name} | {' | '.join(shown(found[engine][what]) for engine in engines)} | {better} |")
    return "\n".join([*lines, "", f"llama-server: {record['peer']}."])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("llama_server", nargs="?")
    parser.add_argument("--llama-package", metavar="VERSION", help="version of the package it was built from, for the record")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prompts", type=int, default=48, help="requests of each load (%(default)s)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--isa", help="what --cpu-isa of Mettle is to be; llama-server uses what it was built for")
    parser.add_argument("--record", metavar="FILE", help="as bench/records/serving_peers.json; without it, nothing is written")
    arguments = parser.parse_args()
    machine.end_children_when_killed()
    loads, troubles = {engine: [] for engine in commands(arguments)}, []
    for round in range(arguments.rounds):
        for engine, command in commands(arguments).items():
            say(f"round {round + 1}: {engine}")
            trouble = machine.busy(arguments.threads)
            others = machine.Others()
            point, commit = under_load(arguments, command, round)
            troubles += [f"round {round + 1}, {engine}: {why}" for why in (trouble, others.trouble()) if why]
            loads[engine].append({name: point[name] for name in KEPT})
            say(f"  {point['output_throughput']:.1f} tok/s out, first token after {point['median_ttft_ms'] / 1000:.2f} s (p50)")
        record = {
            "bench": "serving, next to llama-server",
            "machine": machine.describe(arguments.threads),
            "commit": commit,
            "peer": version(arguments),
            "model": os.path.basename(arguments.model),
            "commands": {
                engine: " ".join(os.path.basename(word) for word in command) for engine, command in commands(arguments).items()
            },
            "load": f"{arguments.prompts} requests, {INPUT} random tokens in, {OUTPUT} out, {CONCURRENCY} at a time",
            "medians": summary(loads, troubles),
            "rounds": loads,
            "no verdict, the machine was busy": troubles,
        }
        if arguments.record:
            machine.write(arguments.record, record)
    print(table(record))
    if troubles:
        say("\n".join(["no verdict: the machine was busy", *troubles]))
        sys.exit(3)


if __name__ == "__main__":
    main()
