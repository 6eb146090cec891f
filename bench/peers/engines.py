"""Owns how an engine is asked for figures: Mettle through its own commands, peers through a worker in their Python."""
import json
import os
import subprocess
import time
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
# Plenty for any process here; one that hangs must not keep the others from being measured.
PATIENCE_SECONDS = 180
FIRST_PROMPT = "The capital of Germany is"


class Failed(Exception):
    """Why there are no figures, in one line."""


def ask(*command):
    """The JSON object that a command prints last."""
    name = " ".join([os.path.basename(command[0]), *map(os.path.basename, command[1:2])])
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"{name}: no answer within {PATIENCE_SECONDS} s") from None
    except OSError as error:
        raise Failed(f"{name}: {error.strerror}") from None
    if done.returncode != 0:
        raise Failed(f"{name}: {(done.stderr.strip().splitlines() or [f'exit code {done.returncode}'])[-1]}")
    try:
        # Peers may say something before it.
        return json.loads(done.stdout[("\n" + done.stdout).rindex("\n{") :])
    except ValueError:
        raise Failed(f"{name}: no JSON object in its output") from None


class Mettle:
    def __init__(self, binary, threads, isa):
        self.binary = binary
        self.flags = ["--device", "cpu", "--threads", threads, *(["--cpu-isa", isa] if isa else [])]

    def latency(self, model, input_len, output_len, batch=1, repeats=1, memory=False):
        """With `memory`: what memory gave right before and after each decode, which on some machines changes by the second."""
        lengths = ["--input-len", input_len, "--output-len", output_len, "--batch", batch, "--repeats", repeats]
        flags = [*self.flags, *(["--memory"] if memory else [])]
        return ask(self.binary, "bench", "latency", "-m", model, *lengths, *flags, "--json")

    def bytes_per_token(self, model, context):
        """Weights, and the cache at this context, as the plan counts them."""
        none, some, *_ = ask(self.binary, "plan", "-m", model, "--json")["decode"]
        per_position = (some["bytes"] - none["bytes"]) / (some["context"] - none["context"])
        return round(none["bytes"] + per_position * (context - none["context"]))

    def seconds_to_first_byte(self, model):
        """From the start of the process to the first byte of an answer."""
        command = [self.binary, "run", "-m", model, "--raw", "--temperature", 0, "--max-tokens", 1, *self.flags, FIRST_PROMPT]
        start = time.perf_counter()
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = process.stdout.read(1)
        seconds = time.perf_counter() - start
        _, errors = process.communicate()
        if not first:
            raise Failed((errors.decode().strip().splitlines() or ["no answer"])[-1])
        return seconds


@dataclass
class Peer:
    worker: str
    package: str
    python: str
    variants: tuple

    def about(self):
        """What it is and what it uses, or why it is absent."""
        try:
            return self._work("about")
        except Failed as reason:
            return {"absent": f"{reason}; pip install {self.package}"}

    def ask(self, **order):
        return self._work(json.dumps(order))

    def _work(self, order):
        return ask(self.python, os.path.join(HERE, self.worker), order)


def peers(llama_python, openvino_python):
    return {
        "llama.cpp": Peer("llama_cpp_worker.py", "llama-cpp-python", llama_python, ("plain", "flash attention")),
        "OpenVINO GenAI": Peer("openvino_worker.py", "openvino-genai", openvino_python, ("PA", "SDPA")),
        "OpenVINO f32": Peer("openvino_worker.py", "openvino-genai", openvino_python, ("PA f32",)),
    }
