#!/usr/bin/env python3
"""Makes a Llama of half a billion random weights in F16, Q8_0, Q6_K and Q4_K_M: a shape to measure, not to talk to.

    pip install llama-cpp-python gguf
    python3 bench/peers/dummy_model.py MODEL.gguf FOLDER [--check target/release/mettle]

The tokenizer is MODEL.gguf's; llama.cpp's own quantizer makes the other types from the F16 file. Files that are there already
are kept. --check asks Mettle and llama.cpp for the next token after a few prompts of each file and prints how far their
log-probabilities lie apart; it fails if one is not a number or if a clear first token differs. Packages are imported where
they are used: cpu.py, which asks here for names only, needs none of them.
"""
import argparse
import ctypes
import json
import math
import os
import subprocess
import sys
import urllib.request

# Every width is a multiple of 256, so that K-quants apply to every matrix.
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, FEED_FORWARD = 1024, 24, 16, 8, 64, 5120
TYPES = {"F16": None, "Q8_0": 7, "Q6_K": 18, "Q4_K_M": 15}  # llama_ftype
SEED = 20
CONTEXT = 8192
PORT = 8931
# The engines round activations differently (8 bits against 15), so that near ties may fall either way.
CLEAR_LEAD = 0.25


def path_of(folder, name):
    return os.path.join(folder, f"llama-0.5b-dummy.{name}.gguf")


def write_f16(path, tokenizer_from):
    import numpy
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter

    source = GGUFReader(tokenizer_from)
    vocabulary = len(source.fields["tokenizer.ggml.tokens"].data)
    writer = GGUFWriter(path, "llama")
    writer.add_name("Llama 0.5B dummy")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    writer.add_file_type(1)
    for name, field in source.fields.items():
        if name.startswith("tokenizer."):
            of_elements = field.types[1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], of_elements)

    tensors = {"token_embd.weight": (vocabulary, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        for name, shape in {
            "attn_norm": (HIDDEN,),
            "attn_q": (HEADS * HEAD, HIDDEN),
            "attn_k": (KV_HEADS * HEAD, HIDDEN),
            "attn_v": (KV_HEADS * HEAD, HIDDEN),
            "attn_output": (HIDDEN, HEADS * HEAD),
            "ffn_norm": (HIDDEN,),
            "ffn_gate": (FEED_FORWARD, HIDDEN),
            "ffn_up": (FEED_FORWARD, HIDDEN),
            "ffn_down": (HIDDEN, FEED_FORWARD),
        }.items():
            tensors[f"blk.{layer}.{name}.weight"] = shape

    def values(index, shape):
        if len(shape) == 1:
            return numpy.ones(shape, numpy.float32)
        # Such that a layer's output has the size of its input.
        random = numpy.random.default_rng([SEED, index])
        return (random.standard_normal(shape, numpy.float32) / math.sqrt(shape[1])).astype(numpy.float16)

    for name, shape in tensors.items():
        element = numpy.dtype(numpy.float32 if len(shape) == 1 else numpy.float16)
        raw = GGMLQuantizationType.F32 if len(shape) == 1 else GGMLQuantizationType.F16
        writer.add_tensor_info(name, shape, element, math.prod(shape) * element.itemsize, raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    # One tensor at a time, so that the file never lies in memory whole.
    for index, shape in enumerate(tensors.values()):
        writer.write_tensor_data(values(index, shape))
    writer.close()


def quantize(source, path, kind):
    from llama_cpp import llama_cpp as L

    silence(L)
    params = L.llama_model_quantize_default_params()
    params.ftype = kind
    params.nthread = os.cpu_count()
    if L.llama_model_quantize(source.encode(), path.encode(), ctypes.byref(params)) != 0:
        sys.exit(f"llama.cpp could not quantize {source} to {path}")


def silence(L):
    # Kept, or it is collected and called all the same.
    silence.callback = L.llama_log_callback(lambda *_: None)
    L.llama_log_set(silence.callback, None)


PROMPTS = [[(7919 * (i + 31 * p)) % 48000 + 100 for i in range(length)] for p, length in enumerate((1, 7, 40, 300))]


def llama_log_probabilities(path):
    import numpy
    from llama_cpp import llama_cpp as L

    silence(L)
    model = L.llama_model_load_from_file(path.encode(), L.llama_model_default_params())
    params = L.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = os.cpu_count()
    context = L.llama_init_from_model(model, params)
    vocabulary = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    found = []
    for prompt in PROMPTS:
        L.llama_memory_clear(L.llama_get_memory(context), True)
        tokens = (L.llama_token * len(prompt))(*prompt)
        if L.llama_decode(context, L.llama_batch_get_one(tokens, len(prompt))) != 0:
            sys.exit(f"llama.cpp could not run {path}")
        logits = numpy.ctypeslib.as_array(L.llama_get_logits_ith(context, -1), (vocabulary,)).astype(numpy.float64)
        found.append(logits - (numpy.log(numpy.exp(logits - logits.max()).sum()) + logits.max()))
    L.llama_free(context)
    L.llama_model_free(model)
    return found


def mettle_first_tokens(binary, path):
    """The most likely token and its log-probability, for each prompt."""
    command = [binary, "serve", "-m", path, "--port", str(PORT), "--device", "cpu"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        if not any(line.startswith("try") for line in server.stderr):
            sys.exit(f"{' '.join(command)} did not start")
        found = []
        for prompt in PROMPTS:
            body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 1, "return_token_ids": True}
            url = f"http://127.0.0.1:{PORT}/v1/completions"
            request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
            answer = json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]
            found.append((answer["token_ids"][0], answer["logprobs"]["token_logprobs"][0]))
        return found
    finally:
        server.terminate()
        server.wait(timeout=30)


def check(binary, name, path):
    theirs, ours = llama_log_probabilities(path), mettle_first_tokens(binary, path)
    apart, same = 0.0, 0
    for all_of_theirs, (token, value) in zip(theirs, ours):
        if not all(map(math.isfinite, [*all_of_theirs, value])):
            sys.exit(f"{name}: a log-probability is not a number")
        behind = all_of_theirs.max() - all_of_theirs[token]
        if behind > CLEAR_LEAD:
            sys.exit(f"{name}: Mettle's first token lies {behind:.2f} behind llama.cpp's")
        same += behind == 0
        apart = max(apart, abs(value - all_of_theirs[token]))
    print(f"{name:7} the same first token after {same} of {len(ours)} prompts, its log-probability within {apart:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer_from", metavar="MODEL.gguf")
    parser.add_argument("folder")
    parser.add_argument("--check", metavar="METTLE", help="the binary to compare with llama.cpp")
    arguments = parser.parse_args()
    os.makedirs(arguments.folder, exist_ok=True)
    for name, kind in TYPES.items():
        path = path_of(arguments.folder, name)
        if not os.path.exists(path):
            print(f"{path} ...", file=sys.stderr)
            if kind is None:
                write_f16(path + ".part", arguments.tokenizer_from)
            else:
                quantize(path_of(arguments.folder, "F16"), path + ".part", kind)
            os.rename(path + ".part", path)
        if arguments.check:
            check(arguments.check, name, path)


if __name__ == "__main__":
    main()
