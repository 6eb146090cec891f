"""Files quantized by Mettle and by llama.cpp from one source: their types, sizes, and perplexities on the same text.

    pip install llama-cpp-python gguf numpy
    python bench/peers/quantize.py target/release/mettle SOURCE.gguf TEXT [--types Q4_K_M Q8_0] [--windows 20]

SOURCE should be of F16 or F32. llama.cpp computes the perplexity of both files, by the rule of perplexity.py, so that nothing
but the weights differs. Prints one JSON object a type; `ratio` is the perplexity of Mettle's file over that of llama.cpp's.
Fails if a tensor has not the type that llama.cpp gives it.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import llama_cpp
from gguf import GGUFReader

from perplexity import llama_perplexity

TYPES = [
    "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K",
    "Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS",
]


def by_llama_cpp(source, out, kind):
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    if llama_cpp.llama_model_quantize(str(source).encode(), str(out).encode(), parameters) != 0:
        raise SystemExit(f"llama.cpp cannot make {kind}")


def by_mettle(binary, source, out, kind):
    subprocess.run([binary, "quantize", source, out, "--type", kind], check=True, stdout=subprocess.DEVNULL)


def measure(make, arguments, folder, name):
    out = Path(folder) / f"{name}.gguf"
    start = time.monotonic()
    make(out)
    seconds = time.monotonic() - start
    types = {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(out).tensors}
    result = {"bytes": out.stat().st_size, "seconds": round(seconds, 1)}
    if arguments.text is not None:
        arguments.model = str(out)
        result["perplexity"] = llama_perplexity(arguments)["perplexity"]
    out.unlink()
    return result, types


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("source")
    parser.add_argument("text", nargs="?", help="without it, only types and sizes are compared")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--windows", type=int, default=20)
    arguments = parser.parse_args()
    for kind in arguments.types:
        with tempfile.TemporaryDirectory() as folder:
            ours, our_types = measure(lambda out: by_mettle(arguments.binary, arguments.source, out, kind), arguments, folder, "ours")
            theirs, their_types = measure(lambda out: by_llama_cpp(arguments.source, out, kind), arguments, folder, "theirs")
        if our_types != their_types:
            name = next(name for name in their_types if our_types.get(name) != their_types[name])
            raise SystemExit(f"{kind}: {name} is {our_types.get(name)} here and {their_types[name]} there")
        result = {"type": kind, "mettle": ours, "llama.cpp": theirs}
        if arguments.text is not None:
            result["ratio"] = ours["perplexity"] / theirs["perplexity"]
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
