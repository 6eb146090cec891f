#!/usr/bin/env python3
"""Mettle's CPU backend next to llama.cpp: same file, same threads, in turn, best of each.

    pip install llama-cpp-python
    cargo build --release
    python3 bench/peers/cpu.py target/release/mettle MODEL.gguf [--threads 2] [--rounds 3] [--only NAME] > bench/records/cpu.json

A round runs Mettle, llama.cpp without and llama.cpp with flash attention, each in a process of its own; the better of the
two counts. The table goes to stderr, the record to stdout. On a busy machine (a fixed loop takes longer than it may, or the
load is not ours) nothing is judged: the record says so and the exit code is 3.
"""
import argparse
import json
import multiprocessing
import os
import platform
import re
import subprocess
import sys
import time

# name: tokens in, tokens out, sequences
CASES = {
    "prefill 512, decode 64": (512, 64, 1),
    "decode, batch 8": (512, 32, 8),
    "decode, batch 32": (512, 16, 32),
    "prefill 4096": (4096, 8, 1),
}
WORKER = os.path.join(os.path.dirname(__file__), "llama_cpp_worker.py")


def spin(_):
    """Seconds of wall clock that pass while this process computes for a fixed time of its own."""
    wall, own = time.perf_counter(), time.process_time()
    while time.process_time() - own < 0.2:
        pass
    return time.perf_counter() - wall


def busy(threads):
    """Why the machine cannot be measured on, or None."""
    with multiprocessing.Pool(threads) as pool:
        worst = max(pool.map(spin, range(threads), chunksize=1))
    if worst > 0.2 * 1.1:
        return f"0.2 s of work on each of {threads} threads took {worst:.2f} s"
    return None


def mettle(arguments, model, case):
    input_len, output_len, batch = case
    command = [arguments.binary, "bench", "latency", "-m", model, "--json", "--device", "cpu", "--repeats", "1"]
    command += ["--input-len", str(input_len), "--output-len", str(output_len), "--batch", str(batch)]
    command += ["--threads", str(arguments.threads)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def llama(arguments, model, case, flash):
    numbers = [*case[:2], case[2], arguments.threads, flash]
    command = [sys.executable, WORKER, model, *map(str, numbers)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def processor():
    with open("/proc/cpuinfo") as info:
        return re.search(r"model name\s+: (.*)", info.read())[1]


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("binary")
parser.add_argument("model")
parser.add_argument("--threads", type=int, default=os.cpu_count())
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--only", help="cases whose name contains this")
arguments = parser.parse_args()

results, troubles = {}, []
for name, case in CASES.items():
    if arguments.only and arguments.only not in name:
        continue
    found = {"mettle": [], "llama.cpp": [], "llama.cpp, flash attention": []}
    for _ in range(arguments.rounds):
        trouble = busy(arguments.threads)
        if trouble:
            troubles.append(f"{name}: {trouble}")
        found["mettle"].append(mettle(arguments, arguments.model, case))
        found["llama.cpp"].append(llama(arguments, arguments.model, case, 0))
        found["llama.cpp, flash attention"].append(llama(arguments, arguments.model, case, 1))
    results[name] = {}
    for phase in ("prefill", "decode"):
        key = f"{phase}_tokens_per_second"
        speeds = {engine: sorted(run[key] for run in runs) for engine, runs in found.items()}
        ours = speeds["mettle"][-1]
        peer = max(speeds["llama.cpp"][-1], speeds["llama.cpp, flash attention"][-1])
        results[name][phase] = {
            "mettle": ours,
            "llama.cpp": peer,
            "ratio": ours / peer,
            "all": {engine: [round(speed, 1) for speed in all] for engine, all in speeds.items()},
        }
        print(f"{name:24} {phase:8} {ours:8.1f} {peer:8.1f} {ours / peer:6.2f}x", file=sys.stderr)

commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
version = subprocess.run(
    [sys.executable, "-c", "import llama_cpp; print(llama_cpp.__version__)"], check=True, capture_output=True, text=True
).stdout.strip()
record = {
    "bench": "cpu against llama.cpp",
    "commit": commit,
    "machine": {"processor": processor(), "system": platform.platform(), "threads": arguments.threads},
    "peer": f"llama-cpp-python {version}",
    "model": os.path.basename(arguments.model),
    "rounds": arguments.rounds,
    "tokens_per_second, best of the rounds": results,
    "no verdict, the machine was busy": troubles,
}
print(json.dumps(record, indent=2))
if troubles:
    print("\n".join(["no verdict: the machine is busy", *troubles]), file=sys.stderr)
    sys.exit(3)
