#!/usr/bin/env python3
"""Times OpenVINO GenAI on a GGUF file in this process and prints a JSON object. Called by cpu.py, and by parity.py for the
log-probabilities of a text; orders as in llama_cpp_worker.py, one sequence only, the variant is the attention backend, PA or SDPA, or "PA f32".

Everything but the number of threads is as OpenVINO has it by default, the cache's type included: activations of matrices become
8 bits; with f32 they stay f32 (Mettle's have 15 bits). A run of the same lengths warms up (kernels are
compiled then); the best of the repeats counts.
"""
import json
import os
import sys
import time

import openvino_genai  # first, so that it is the one that is named if it is missing
import openvino
import numpy

FIRST_PROMPT = [504, 3575, 282, 4521, 314]  # The capital of Germany is


def about():
    """Also what it takes by default here, as a model of one op is given it."""
    core, x = openvino.Core(), openvino.opset13.parameter([1, 4])
    compiled = core.compile_model(openvino.Model([openvino.opset13.relu(x)], [x]), "CPU")
    precisions = {"activations by default": "INFERENCE_PRECISION_HINT", "cache": "KV_CACHE_PRECISION"}
    defaults = {what: compiled.get_property(name).get_type_name() for what, name in precisions.items()}
    group = compiled.get_property("DYNAMIC_QUANTIZATION_GROUP_SIZE")
    return {
        "package": f"openvino-genai {openvino_genai.__version__}",
        "instructions": os.environ.get("ONEDNN_MAX_CPU_ISA", "all it finds"),
        **defaults,
        "8-bit activations by default": f"in groups of {group}" if group else "no",
    }


def settings(order):
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    return {"INFERENCE_NUM_THREADS": order["threads"]} | (exact if order["variant"].endswith("f32") else {})


def opened(order):
    # Quantized files are converted while they are read; there is nothing to keep for the next time.
    backend = order["variant"].split()[0]
    return openvino_genai.LLMPipeline(order["model"], "CPU", ATTENTION_BACKEND=backend, **settings(order))


def generate(pipeline, tokens, count):
    """Seconds to the first token, and from the first to the last."""
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = count
    config.ignore_eos, config.do_sample = True, False
    ids = numpy.array([tokens], dtype=numpy.int64)
    inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))
    result = pipeline.generate(inputs, config)
    if len(result.tokens[0]) != count:
        sys.exit(f"OpenVINO gave {len(result.tokens[0])} tokens, {count} were asked for")
    metrics = result.perf_metrics  # in milliseconds; TPOT is the mean over all tokens but the first
    return metrics.get_ttft().mean / 1000, metrics.get_tpot().mean / 1000 * (count - 1) if count > 1 else 0.0


def speed(order):
    if order["batch"] != 1:
        sys.exit("only one sequence is measured with OpenVINO")
    pipeline = opened(order)

    def whole(seed):
        prompt = [(7919 * (i + 31 * seed)) % 48000 + 100 for i in range(order["input"])]
        return generate(pipeline, prompt, order["output"] + 1)

    whole(0)
    times = [whole(1 + repeat) for repeat in range(order["repeats"])]
    return {
        "prefill_tokens_per_second": order["input"] / min(prefill for prefill, _ in times),
        "decode_tokens_per_second": order["output"] / min(decode for _, decode in times),
    }


def log_probabilities(order):
    """Of each token but the first, after those before it. The whole text goes through in one step."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.max_num_batched_tokens, scheduler.cache_size = len(order["tokens"]), 1
    pipeline = openvino_genai.ContinuousBatchingPipeline(order["model"], scheduler, "CPU", settings(order))
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens, config.logprobs, config.echo, config.ignore_eos = 1, 1, True, True
    request = pipeline.add_request(0, openvino.Tensor(numpy.array([order["tokens"]], dtype=numpy.int64)), config)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    (answer,) = request.read_all()
    if list(answer.generated_ids[:-1]) != order["tokens"]:
        sys.exit("OpenVINO echoes other tokens than it was given")
    return {"log_probabilities": [float(value) for value in answer.generated_log_probs[1:-1]]}


def first_token(order):
    start = time.perf_counter()
    generate(opened(order), FIRST_PROMPT, 1)
    return {"first_token_seconds": time.perf_counter() - start}


if sys.argv[1] == "about":
    print(json.dumps(about()))
else:
    order = json.loads(sys.argv[1])
    tasks = {"speed": speed, "first token": first_token, "log-probabilities": log_probabilities}
    print(json.dumps(tasks[order["task"]](order)))
