"""A real model's log-probabilities or embeddings by Mettle and by transformers in f32, the same file and the same text.

    pip install torch transformers gguf
    python bench/peers/parity.py target/release/mettle MODEL... [--text FILE] [--tokens 400] [--types Q8_0 Q4_K_M ...] [--record]
                                 [--openvino-python .../bin/python]

A MODEL is a .gguf file or a folder of safetensors. The tokens are the text's first, as Mettle cuts it; what is compared is the
log-probability of each token after those before it, as crates/validate/tests/default_model.rs does for the default model. With
--types each .gguf is also quantized by `mettle quantize` and the copy compared in the same way: transformers dequantizes the
copy, so that nothing but the arithmetic differs. A folder of sentence-transformers (it has modules.json) is compared by the
embeddings of the text's paragraphs instead, number by number. With --openvino-python (one that has openvino-genai) the same is
told of OpenVINO on each .gguf, as it comes and kept to f32. Prints one JSON object a file; --record also puts it
into bench/records/real_files.json, in the place of what that had of this file. Exit code 1 if a mean is over 0.02.
"""
import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers

import engines
import machine
from mettle_server import Server, commit

ROOT = Path(__file__).resolve().parents[2]
TEXT = ROOT / "fixtures" / "smollm2" / "texts" / "prose.txt"
RECORD = ROOT / "bench" / "records" / "real_files.json"
MEAN_TOLERANCE = 0.02


def by_mettle(arguments, model):
    """The text's tokens, the log-probability of each but the first, and the most likely ones."""
    with Server(arguments.binary, model, "--threads", arguments.threads, "--max-model-len", arguments.tokens + 1) as server:
        text = arguments.text.read_text()
        tokens = server.post("/tokenize", {"content": text, "parse_special": False})["tokens"][:arguments.tokens]
        if len(tokens) < arguments.tokens:
            raise SystemExit(f"{arguments.text} has {len(tokens)} tokens, {arguments.tokens} are wanted")
        asked = {"prompt": tokens, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1}
        entries = server.post("/v1/completions", asked)["choices"][0]["prompt_logprobs"]
    following, best = [], []
    for token, entry in zip(tokens[1:], entries[1:], strict=True):
        following.append(entry[str(token)]["logprob"])
        best.append(next(int(id) for id, found in entry.items() if found["rank"] == 1))
    return tokens, torch.tensor(following, dtype=torch.float64), torch.tensor(best)


@torch.no_grad()
def by_transformers(model, tokens):
    # A folder is given as it is, a file by its name in its folder.
    where = [model] if model.is_dir() else [model.parent]
    named = {} if model.is_dir() else {"gguf_file": model.name}
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        *where, **named, dtype=torch.float32, attn_implementation="eager", local_files_only=True).eval()
    rows = torch.log_softmax(loaded(torch.tensor([tokens]), use_cache=False).logits[0].double(), dim=-1)[:-1]
    following = rows[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])]
    return following, rows.argmax(dim=-1)


@torch.no_grad()
def compare_embeddings(arguments, model):
    """As the folder's own modules say: BERT, then the mean or the first token, then perhaps length 1."""
    paragraphs = [part for part in arguments.text.read_text().split("\n\n") if part.strip()]
    with Server(arguments.binary, model, "--threads", arguments.threads) as server:
        answer = server.post("/v1/embeddings", {"input": paragraphs})
    ours = torch.tensor([entry["embedding"] for entry in answer["data"]], dtype=torch.float64)
    modules = [module["type"].rsplit(".", 1)[-1] for module in json.loads((model / "modules.json").read_text())]
    pooling = json.loads((model / "1_Pooling" / "config.json").read_text())
    tokenizer = transformers.AutoTokenizer.from_pretrained(model, local_files_only=True)
    loaded = transformers.AutoModel.from_pretrained(
        model, dtype=torch.float32, attn_implementation="eager", local_files_only=True).eval()
    theirs, tokens = [], 0
    for paragraph in paragraphs:
        read = tokenizer(paragraph, return_tensors="pt", padding=False, truncation=False)
        hidden = loaded(**read).last_hidden_state[0].double()
        tokens += len(hidden)
        theirs.append(hidden.mean(dim=0) if pooling["pooling_mode_mean_tokens"] else hidden[0])
    theirs = torch.stack(theirs)
    if "Normalize" in modules:
        theirs = torch.nn.functional.normalize(theirs)
    difference = (ours - theirs).abs()
    return {
        "tokens": tokens,
        "texts": len(paragraphs),
        "mean_difference": float(f"{difference.mean().item():.3g}"),
        "max_difference": float(f"{difference.max().item():.3g}"),
        "smallest_cosine": round(torch.cosine_similarity(ours, theirs).min().item(), 9),
    }


def by_openvino(arguments, model, tokens, expected):
    """How far OpenVINO is from the same reference, with each of its settings."""
    peers, found = engines.peers(None, arguments.openvino_python), {}
    for name in ("OpenVINO GenAI", "OpenVINO f32"):
        peer = peers[name]
        order = {"task": "log-probabilities", "model": str(model), "threads": arguments.threads, "tokens": tokens}
        theirs = torch.tensor(peer.ask(variant=peer.variants[0], **order)["log_probabilities"], dtype=torch.float64)
        found[name] = distance(theirs, expected) | {"perplexity": perplexity(theirs)}
    return found


def distance(found, expected):
    difference = (found - expected).abs()
    return {"mean_difference": round(difference.mean().item(), 6), "max_difference": round(difference.max().item(), 6)}


def perplexity(log_probabilities):
    return round(log_probabilities.mean().neg().exp().item(), 4)


def compare(arguments, model):
    if (model / "modules.json").exists():
        return compare_embeddings(arguments, model)
    tokens, ours, our_best = by_mettle(arguments, model)
    theirs, their_best = by_transformers(model, tokens)
    result = {
        "tokens": len(tokens),
        **distance(ours, theirs),
        "most_likely_agrees": round((our_best == their_best).double().mean().item(), 6),
        # Of both, so that two models that are wrong in the same way do not look right.
        "perplexity": {"mettle": perplexity(ours), "transformers": perplexity(theirs)},
    }
    if arguments.openvino_python and model.suffix == ".gguf":
        result["peers"] = by_openvino(arguments, model, tokens, theirs)
    return result


def files(arguments, folder):
    """Each model, and what is quantized from it: name, path, where it comes from."""
    for model in arguments.model:
        yield model.name, model, None
        for kind in arguments.types if model.suffix == ".gguf" else []:
            copy = Path(folder) / f"{kind}.gguf"
            subprocess.run([arguments.binary, "quantize", model, copy, "--type", kind], check=True, stdout=subprocess.DEVNULL)
            yield f"{model.name} as {kind}", copy, model.name
            copy.unlink()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("model", nargs="+", type=Path)
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--types", nargs="+", default=[])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--openvino-python")
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    machine.end_children_when_killed()
    transformers.utils.logging.disable_progress_bar()
    about = {
        "command": " ".join(["python3", "bench/peers/parity.py", *(Path(part).name if "/" in part else part for part in sys.argv[1:])]),
        "commit": commit(arguments.binary),
        "made_with": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}",
        "machine": machine.describe(arguments.threads),
        "text": arguments.text.name,
    }
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name, model, source in files(arguments, folder):
            result = {"quantized_from": source} if source else {}
            if source is None and model.is_file():
                result["sha256"] = hashlib.sha256(model.read_bytes()).hexdigest()
            result |= compare(arguments, model)
            failed |= result["mean_difference"] > MEAN_TOLERANCE
            print(json.dumps({"file": name, **result}), flush=True)
            if arguments.record:
                record = json.loads(RECORD.read_text()) if RECORD.exists() else {"bench": "Real files against transformers in f32", "files": {}}
                record["files"][name] = result | about
                machine.write(str(RECORD), record)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
