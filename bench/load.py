#!/usr/bin/env python3
"""Measures load time and resident memory of the default model. Linux only (reads /proc).

    cargo build --release && python3 bench/load.py target/release/mettle > bench/records/load.json

Starts `mettle serve` several times with a warm file cache, asks for one completion, and takes the best load time (as the
banner says it), peak resident memory after load, and resident memory after the answer.
"""
import json, platform, re, subprocess, sys, time, urllib.request

PORT = 8911
REPEATS = 5


def memory(pid, field):
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(rf"{field}:\s+(\d+) kB", status.read())[1]) * 1024


def once(binary):
    server = subprocess.Popen([binary, "serve", "--port", str(PORT)], stderr=subprocess.PIPE, text=True)
    banner = []
    try:
        for line in server.stderr:
            banner.append(line.rstrip())
            if line.startswith("try"):
                break
        loaded = {"peak": memory(server.pid, "VmHWM"), "steady": memory(server.pid, "VmRSS")}
        body = json.dumps({"prompt": "The capital of Germany is", "max_tokens": 8}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/completions", body, {"Content-Type": "application/json"})
        start = time.monotonic()
        answer = json.load(urllib.request.urlopen(request, timeout=60))
        return {
            "load_seconds": float(re.search(r"loaded in ([\d.]+) s", "\n".join(banner))[1]),
            "answer_seconds": round(time.monotonic() - start, 3),
            "answer": answer["choices"][0]["text"],
            "peak_rss_bytes_after_load": loaded["peak"],
            "rss_bytes_after_load": loaded["steady"],
            "rss_bytes_after_answer": memory(server.pid, "VmRSS"),
            "banner": banner,
        }
    finally:
        server.terminate()
        server.wait(timeout=10)


def processor():
    with open("/proc/cpuinfo") as info:
        return re.search(r"model name\s+: (.*)", info.read())[1]


runs = [once(sys.argv[1]) for _ in range(REPEATS)]
best = min(runs, key=lambda run: run["load_seconds"])
commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
machine = {"processor": processor(), "system": platform.platform()}
print(json.dumps({"bench": "load", "commit": commit, "machine": machine, "repeats": REPEATS,
                  "load_seconds_all": [run["load_seconds"] for run in runs], **best}, indent=2))
