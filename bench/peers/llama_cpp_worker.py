#!/usr/bin/env python3
"""Times llama.cpp through llama-cpp-python in this process and prints a JSON object. Called by cpu.py.

    python3 bench/peers/llama_cpp_worker.py about
    python3 bench/peers/llama_cpp_worker.py '{"task": "speed", "model": "MODEL.gguf", "input": 512, "output": 64, "batch": 1,
                                              "repeats": 1, "threads": 2, "variant": "flash attention"}'
    ... '{"task": "first token", ...}'  seconds from opening the model to the first token after its five-token prompt

A short run warms up; the best of the repeats counts. One prompt is computed in steps of 512 tokens and, for a batch, copied
into the other sequences' own cache, so that a batch costs no more time to prepare than one.
"""
import ctypes
import json
import re
import sys
import time

import llama_cpp
from llama_cpp import llama_cpp as L

STEP = 512
FIRST_PROMPT = [504, 3575, 282, 4521, 314]  # The capital of Germany is


def about():
    L.llama_backend_init()
    present = re.findall(r"(\w+) = 1", L.llama_print_system_info().decode())
    return {"package": f"llama-cpp-python {llama_cpp.__version__}", "built for": " ".join(present)}


class Run:
    def __init__(self, order):
        batch, length = order["batch"], order["input"] + order["output"] + 32
        self.model = L.llama_model_load_from_file(order["model"].encode(), L.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp cannot open {order['model']}")
        params = L.llama_context_default_params()
        params.n_ctx = batch * length
        params.n_batch = params.n_ubatch = STEP
        params.n_seq_max = batch
        params.n_threads = params.n_threads_batch = order["threads"]
        params.flash_attn_type = int(order["variant"] == "flash attention")
        self.context = L.llama_init_from_model(self.model, params)
        self.memory = L.llama_get_memory(self.context)
        self.rows = L.llama_batch_init(STEP, 0, 1)
        self.batch = batch

    def step(self, rows):
        """Rows are (token, position, sequence, wants logits)."""
        self.rows.n_tokens = len(rows)
        for i, (token, position, sequence, logits) in enumerate(rows):
            self.rows.token[i] = token
            self.rows.pos[i] = position
            self.rows.n_seq_id[i] = 1
            self.rows.seq_id[i][0] = sequence
            self.rows.logits[i] = logits
        if L.llama_decode(self.context, self.rows) != 0:
            sys.exit("llama_decode failed")
        L.llama_synchronize(self.context)

    def prefill(self, tokens):
        rows = [(token, i, 0, i == len(tokens) - 1) for i, token in enumerate(tokens)]
        start = time.perf_counter()
        for at in range(0, len(rows), STEP):
            self.step(rows[at : at + STEP])
        return time.perf_counter() - start

    def copy_to_all(self):
        size = L.llama_state_seq_get_size(self.context, 0)
        state = (ctypes.c_uint8 * size)()
        L.llama_state_seq_get_data(self.context, state, size, 0)
        for sequence in range(1, self.batch):
            if L.llama_state_seq_set_data(self.context, state, size, sequence) != size:
                sys.exit("llama_state_seq_set_data failed")

    def decode(self, first, count):
        start = time.perf_counter()
        for i in range(count):
            self.step([(100 + i, first + i, s, True) for s in range(self.batch)])
        return time.perf_counter() - start

    def whole(self, input_len, output_len):
        L.llama_memory_clear(self.memory, True)
        prefill = self.prefill([(7919 * i) % 48000 + 100 for i in range(input_len)])
        self.copy_to_all()
        return prefill, self.decode(input_len, output_len)


def speed(order):
    run = Run(order)
    run.whole(min(order["input"], 64), 2)
    times = [run.whole(order["input"], order["output"]) for _ in range(order["repeats"])]
    return {
        "prefill_tokens_per_second": order["input"] / min(prefill for prefill, _ in times),
        "decode_tokens_per_second": order["batch"] * order["output"] / min(decode for _, decode in times),
    }


def first_token(order):
    L.llama_backend_init()
    start = time.perf_counter()
    Run({**order, "batch": 1, "input": 512, "output": 512}).prefill(FIRST_PROMPT)
    return {"first_token_seconds": time.perf_counter() - start}


quiet = L.llama_log_callback(lambda *_: None)  # named, or it is collected and called all the same
L.llama_log_set(quiet, None)
if sys.argv[1] == "about":
    print(json.dumps(about()))
else:
    order = json.loads(sys.argv[1])
    print(json.dumps({"speed": speed, "first token": first_token}[order["task"]](order)))
