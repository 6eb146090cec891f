"""Perplexity of a text by Mettle and by llama.cpp, the same file and the same windows.

    pip install llama-cpp-python numpy
    python bench/peers/perplexity.py target/release/mettle MODEL.gguf TEXT [--context 512] [--windows 20]

Prints one JSON object; `ratio` is Mettle's figure over llama.cpp's. The rule is that of llama.cpp's own tool, written down in
crates/cli/src/commands/perplexity.rs.
"""

import argparse
import json
import subprocess

import llama_cpp
import numpy


def nats(llama, window):
    """Negative log-probabilities of the window's second half, without its first token."""
    llama.reset()
    llama.eval(window)
    first = len(window) // 2
    logits = numpy.asarray(llama.scores[first:len(window) - 1], dtype=numpy.float64)
    logits -= logits.max(axis=1, keepdims=True)
    log_sums = numpy.log(numpy.exp(logits).sum(axis=1))
    following = numpy.asarray(window[first + 1:])
    return log_sums - logits[numpy.arange(len(following)), following]


def llama_perplexity(arguments):
    llama = llama_cpp.Llama(arguments.model, n_ctx=arguments.context, n_batch=arguments.context, logits_all=True, verbose=False)
    with open(arguments.text, "rb") as file:
        tokens = llama.tokenize(file.read(), add_bos=True, special=False)
    begins = llama.tokenize(b"", add_bos=True)[:1]
    windows = min(len(tokens) // arguments.context, arguments.windows)
    scored = []
    for number in range(windows):
        window = tokens[number * arguments.context:(number + 1) * arguments.context]
        scored.append(nats(llama, begins + window[len(begins):]))
    return {"perplexity": float(numpy.exp(numpy.concatenate(scored).mean())), "text_tokens": len(tokens), "windows": windows}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--windows", type=int, default=20)
    arguments = parser.parse_args()
    command = [arguments.binary, "perplexity", "-m", arguments.model, arguments.text, "--json", "--device", "cpu"]
    command += ["--context", str(arguments.context), "--windows", str(arguments.windows)]
    ours = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    theirs = llama_perplexity(arguments)
    if ours["text_tokens"] != theirs["text_tokens"]:
        raise SystemExit(f"the text has {ours['text_tokens']} tokens here and {theirs['text_tokens']} there: not comparable")
    result = {"mettle": ours, "llama.cpp": theirs, "ratio": ours["perplexity"] / theirs["perplexity"]}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
