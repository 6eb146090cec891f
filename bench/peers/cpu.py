#!/usr/bin/env python3
"""Mettle's CPU backend next to llama.cpp and OpenVINO GenAI: same file, same threads, in turn, best of each.

    pip install llama-cpp-python                              # openvino-genai too, here or in an environment of its own
    cargo build --release
    python3 bench/peers/dummy_model.py MODEL.gguf FOLDER      # the 0.5B shapes, once
    python3 bench/peers/cpu.py target/release/mettle MODEL.gguf --dummy FOLDER [--openvino-python .../bin/python]
                               [--rows NAME,...] [--isa avx2]

A round runs each engine in a process of its own: Mettle, llama.cpp without and with flash attention, OpenVINO with each of its
two attention backends, and OpenVINO kept to f32 activations as a peer of its own. The better variant counts; from the second
round on only variants that were better at something run. The record, if --record names one, is
written after every row, and rows of the same machine that are not asked for stay in it. What cannot be measured is in it with the reason. The
table goes to stdout. On a busy machine (a fixed loop takes longer than it may, or others use the cores during a round)
nothing is judged: the row says so and the exit code is 3.
"""
import argparse
import json
import os
import statistics
import sys
from dataclasses import dataclass

import cpu_table
import dummy_model
import engines
import machine
from cpu_table import BUSY
from engines import Failed

DEFAULT = "default"
FIRST_TOKEN = "first-token"
FIRST_REPEATS = 5
# For the first token: what each peer does unless told otherwise.
FIRST_VARIANTS = {"llama.cpp": "plain", "OpenVINO GenAI": "PA"}


def reads_all(row):
    """Whether decode reads weights and cache once for each token, so that memory is its limit."""
    return row.batch == 1 and "decode" in row.phases


@dataclass
class Row:
    phases: dict  # what the table calls them
    input: int
    output: int
    batch: int = 1
    model: str = DEFAULT  # or a type of the dummy model
    peers: tuple = ("llama.cpp",)
    rounds: int = 2
    repeats: int = 1
    # Prompts of so many tokens take turns with these, for as many tokens in all: what is said is the share of their rate.
    beside: int = 0


def both(of=""):
    return {"prefill": f"{of}prefill, 512 tokens", "decode": f"{of}decode after 512"}


ROWS = {
    "512": Row(both(), 512, 64, peers=("llama.cpp", "OpenVINO GenAI", "OpenVINO f32"), repeats=3),
    "4096": Row({"prefill": "prefill, 4096 tokens"}, 4096, 8, rounds=5, beside=512),
    "batch-8": Row({"decode": "decode, 8 sequences after 512"}, 512, 32, 8),
    "batch-32": Row({"decode": "decode, 32 sequences after 512"}, 512, 16, 32),
    **{kind.lower(): Row(both(f"0.5B {kind}: "), 512, 32, model=kind, repeats=3) for kind in reversed(dummy_model.TYPES)},
}
NAMES = [*ROWS, FIRST_TOKEN]


def say(text):
    print(text, file=sys.stderr, flush=True)


def speed_of(phase):
    return f"{phase}_tokens_per_second"


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.mettle = engines.Mettle(arguments.binary, arguments.threads, arguments.isa)
        self.peers = engines.peers(arguments.llama_python, arguments.openvino_python)
        first = self.mettle.latency(arguments.model, 8, 1)
        self.commit = first["commit"]
        self.record = {
            "bench": "CPU, next to other engines",
            "machine": machine.describe(arguments.threads),
            "mettle": first["device"],
            "peers": {name: peer.about() for name, peer in self.peers.items()},
            "rows": {},
        }
        self.absent = {name: about["absent"] for name, about in self.record["peers"].items() if "absent" in about}
        for name, reason in self.absent.items():
            say(f"{name} is absent ({reason}; or name the Python that has it, see --help)")
        self.keep_earlier_rows()

    def keep_earlier_rows(self):
        if not self.arguments.record:
            return
        try:
            with open(self.arguments.record) as written:
                earlier = json.load(written)
        except (OSError, ValueError):
            return
        # Rows of another form, machine or set of peers say nothing beside these.
        if all(earlier.get(same) == self.record[same] for same in ("bench", "machine", "mettle", "peers")):
            self.record["rows"] = earlier["rows"]

    def run(self, names):
        for name in names:
            try:
                result = self.first_token() if name == FIRST_TOKEN else self.row(name, ROWS[name])
            except Failed as reason:
                say(f"{name}: {reason}")
                result = {"not measured": str(reason)}
            rows = self.record["rows"] | {name: result}
            self.record["rows"] = {name: rows[name] for name in NAMES if name in rows}
            if self.arguments.record:
                machine.write(self.arguments.record, self.record)

    def path(self, model):
        if model == DEFAULT:
            return self.arguments.model
        path = dummy_model.path_of(self.arguments.dummy, model) if self.arguments.dummy else None
        if path is None or not os.path.exists(path):
            raise Failed(f"no {model} file under --dummy FOLDER; dummy_model.py makes it")
        return path

    def row(self, name, row):
        path = self.path(row.model)
        runs, missing, disturbed = self.measure(name, row, path)
        result = {
            "titles": row.phases,
            "model": os.path.basename(path),
            "commit": self.commit,
            "tokens": {"in": row.input, "out": row.output, "sequences": row.batch},
            "best_tokens_per_second": {},
            "all_tokens_per_second": {},
        }
        for phase in row.phases:
            every = {engine: [round(run[speed_of(phase)], 1) for run in found] for engine, found in runs.items()}
            best = {}
            for engine, speeds in every.items():
                engine = engine.split(",")[0]
                best[engine] = max([*speeds, best.get(engine, 0)])
            result["best_tokens_per_second"][phase] = best
            result["all_tokens_per_second"][phase] = every
        if reads_all(row):
            result["bytes_per_token"] = self.mettle.bytes_per_token(path, row.input + row.output // 2)
            result["decode_read"] = [
                {
                    "bytes_per_second": round(result["bytes_per_token"] * decode["tokens_per_second"]),
                    "of": [round(found) for found in decode["memory_bytes_per_second"]],
                }
                for run in runs["mettle"]
                for decode in run["decode_beside_memory"]
            ]
        if row.beside:
            shares = [run["prefill"]["median"] / run["beside"]["median"] for run in runs["mettle"]]
            result["of_rate"] = {
                "tokens": row.beside,
                "median_tokens_per_second": [round(run["beside"]["median"], 1) for run in runs["mettle"]],
                "shares": [round(share, 4) for share in shares],
                "median_share": round(statistics.median(shares), 4),
            }
        return result | {"missing": missing, BUSY: disturbed}

    def measure(self, name, row, path):
        """The runs of each engine and variant, why engines are missing, and what disturbed."""
        order = {"task": "speed", "model": path, "input": row.input, "output": row.output, "batch": row.batch}
        order |= {"repeats": row.repeats, "threads": self.arguments.threads}
        runs, disturbed = {"mettle": []}, []
        missing = {peer: "absent" for peer in row.peers if peer in self.absent}
        left = [(peer, variant) for peer in row.peers if peer not in missing for variant in self.peers[peer].variants]
        for round in range(self.arguments.rounds or row.rounds):
            say(f"{name}: round {round + 1}")
            disturbed.append(machine.busy(self.arguments.threads))
            others = machine.Others()
            run = self.mettle.latency(path, row.input, row.output, row.batch, row.repeats, reads_all(row))
            if row.beside:
                # As many tokens, the one prompt to warm up included: clocks fall within seconds of work.
                repeats = (row.repeats + 1) * row.input // row.beside - 1
                run["beside"] = self.mettle.latency(path, row.beside, row.output, row.batch, repeats)["prefill"]
            runs["mettle"].append(run)
            latest = {}
            for peer, variant in left:
                try:
                    latest[peer, variant] = self.peers[peer].ask(**order, variant=variant)
                    runs.setdefault(f"{peer}, {variant}", []).append(latest[peer, variant])
                except Failed as reason:
                    missing[f"{peer}, {variant}"] = str(reason)
            disturbed.append(others.trouble())
            left = self.better_at_something(row, latest)
        return runs, missing, list(filter(None, disturbed))

    @staticmethod
    def better_at_something(row, latest):
        def best(peer, phase):
            return max((key for key in latest if key[0] == peer), key=lambda key: latest[key][speed_of(phase)])

        chosen = {best(peer, phase) for peer, _ in latest for phase in row.phases}
        return [key for key in latest if key in chosen]

    def first_token(self):
        seconds, missing = {"mettle": []}, {peer: "absent" for peer in FIRST_VARIANTS if peer in self.absent}
        disturbed = [machine.busy(self.arguments.threads)]
        others = machine.Others()
        for repeat in range(FIRST_REPEATS):
            say(f"{FIRST_TOKEN}: {repeat + 1} of {FIRST_REPEATS}")
            seconds["mettle"].append(self.mettle.seconds_to_first_byte(self.arguments.model))
            for peer, variant in FIRST_VARIANTS.items():
                if peer in missing:
                    continue
                order = {"model": self.arguments.model, "threads": self.arguments.threads, "variant": variant}
                try:
                    run = self.peers[peer].ask(task="first token", **order)
                    seconds.setdefault(peer, []).append(run["first_token_seconds"])
                except Failed as reason:
                    missing[peer] = str(reason)
        disturbed.append(others.trouble())
        return {
            "title": "load to first token, file cache warm",
            "model": os.path.basename(self.arguments.model),
            "commit": self.commit,
            # Python's own start is not the peers'.
            "what": "mettle: start of the process to the first byte of the answer; peers: opening the model to the first token",
            "median_seconds": {engine: statistics.median(found) for engine, found in seconds.items()},
            "all_seconds": {engine: [round(each, 3) for each in found] for engine, found in seconds.items()},
            "missing": missing,
            BUSY: list(filter(None, disturbed)),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--dummy", metavar="FOLDER", help="files of dummy_model.py")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, help="instead of each row's own number")
    parser.add_argument("--rows", metavar="NAME,...", help=f"some of {','.join(NAMES)}")
    parser.add_argument("--isa", help="what --cpu-isa of Mettle is to be; peers use what they were built for")
    parser.add_argument("--llama-python", default=sys.executable, help="a Python that has llama-cpp-python (this one)")
    parser.add_argument("--openvino-python", default=sys.executable, help="a Python that has openvino-genai (this one)")
    parser.add_argument("--record", metavar="FILE", help="as bench/records/cpu.json; without it, nothing is written")
    arguments = parser.parse_args()
    names = arguments.rows.split(",") if arguments.rows else NAMES
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        parser.error(f"there is no row {', '.join(unknown)}; there are {', '.join(NAMES)}")
    machine.end_children_when_killed()
    try:
        bench = Bench(arguments)
    except Failed as reason:
        sys.exit(f"{arguments.binary}: {reason}")
    bench.run(names)
    print(cpu_table.table(bench.record))
    if any(bench.record["rows"][name].get(BUSY) for name in names):
        say("no verdict: the machine was busy")
        sys.exit(3)


if __name__ == "__main__":
    main()
