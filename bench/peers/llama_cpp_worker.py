#!/usr/bin/env python3
"""Times llama.cpp through llama-cpp-python once and prints a JSON object. Called by cpu.py.

    python3 bench/peers/llama_cpp_worker.py MODEL.gguf INPUT OUTPUT BATCH THREADS FLASH_ATTENTION(0|1)

Prompts are computed together in steps of 512 tokens, then one token of each a step. A first, short run warms up.
"""
import json
import sys
import time

from llama_cpp import llama_cpp as L

path, *numbers = sys.argv[1:]
input_len, output_len, batch_size, threads, flash = map(int, numbers)

L.llama_backend_init()
quiet = L.llama_log_callback(lambda *_: None)  # named, or it is collected and called all the same
L.llama_log_set(quiet, None)
model = L.llama_model_load_from_file(path.encode(), L.llama_model_default_params())
params = L.llama_context_default_params()
params.n_ctx = batch_size * (input_len + output_len + 32)
params.n_batch = params.n_ubatch = 512
params.n_seq_max = batch_size
params.n_threads = params.n_threads_batch = threads
params.flash_attn_type = flash
context = L.llama_init_from_model(model, params)
memory = L.llama_get_memory(context)
batch = L.llama_batch_init(512, 0, 1)


def decode(rows):
    """Rows are (token, position, sequence, wants logits)."""
    batch.n_tokens = len(rows)
    for i, (token, position, sequence, logits) in enumerate(rows):
        batch.token[i] = token
        batch.pos[i] = position
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = sequence
        batch.logits[i] = logits
    if L.llama_decode(context, batch) != 0:
        sys.exit("llama_decode failed")
    L.llama_synchronize(context)


def run(input_len, output_len):
    L.llama_memory_clear(memory, True)
    prompt = [
        ((7919 * (i + 31 * s)) % 48000 + 100, i, s, i == input_len - 1) for s in range(batch_size) for i in range(input_len)
    ]
    start = time.perf_counter()
    for at in range(0, len(prompt), 512):
        decode(prompt[at : at + 512])
    prefill = time.perf_counter() - start
    start = time.perf_counter()
    for step in range(output_len):
        decode([(100 + step, input_len + step, s, True) for s in range(batch_size)])
    return prefill, time.perf_counter() - start


run(min(input_len, 64), 2)
prefill, decoding = run(input_len, output_len)
print(
    json.dumps(
        {
            "prefill_tokens_per_second": batch_size * input_len / prefill,
            "decode_tokens_per_second": batch_size * output_len / decoding,
        }
    )
)
