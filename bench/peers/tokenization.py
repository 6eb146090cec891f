"""Token ids of real vocabularies by Mettle and by others, on a few thousand varied lines.

    pip install llama-cpp-python gguf sentencepiece transformers protobuf
    python bench/peers/tokenization.py target/release/mettle VOCABULARY... [--lines 3000] [--show 10] [--record]

A VOCABULARY is a GGUF file (of a whole model or, as llama.cpp's source has them under models/, with no tensors) or a folder
with tokenizer.json. It is put into a tiny model, which `mettle serve` answers for. The others are llama.cpp for GGUF,
SentencePiece itself where a GGUF file holds its pieces and scores, transformers for a folder; and, where VOCABULARY.inp and
.out lie beside it, the ids in those, which llama.cpp's makers took from transformers. Prints one JSON object a vocabulary:
how many lines differ, and the shortest of them. Exit code 1 if any does. Most lines are plain text, in which nothing is a
special token; some hold the vocabulary's own special tokens, which are then meant. --record also writes
bench/records/tokenization.json.
"""
import argparse
import importlib.metadata
import json
import random
import shutil
import sys
import tempfile
import unicodedata
from pathlib import Path

import numpy
from gguf import GGUFReader, GGUFValueType, GGUFWriter

import machine
from mettle_server import Server, commit

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "fixtures" / "make"))
import torture  # noqa: E402

RECORD = ROOT / "bench" / "records" / "tokenization.json"
WIDTH = 32
# Blocks of characters that a random line is drawn from: letters, marks, digits and signs of many scripts, blanks, controls.
SCRIPTS = [
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x587), (0x5D0, 0x5EA), (0x600, 0x6FF),
    (0x904, 0x970), (0xE01, 0xE5B), (0x10A0, 0x10FF), (0x1100, 0x1160), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x20BF),
    (0x2100, 0x23FF), (0x2500, 0x27BF), (0x3000, 0x30FF), (0x4E00, 0x4FFF), (0xAC00, 0xADFF), (0xFB00, 0xFB4F), (0xFE00, 0xFE0F),
    (0xFF01, 0xFF9F), (0x1D400, 0x1D7FF), (0x1F300, 0x1F64F), (0x1F900, 0x1F9FF), (0x20000, 0x200FF), (0x1, 0x1F),
]
JOINS = ["", " ", "  ", "   ", "\n", "\n\n", " \n ", "\t", "\r\n", "'", "-", ".", "\u00a0", "\u3000"]
WORDS = "the Hello WORLD isn't it's 7 42 2024 1000000 3.14 naïve Straße été мир 你好 日本語 한국어 नमस्ते สวัสดี مرحبا 🙂 👨‍👩‍👧 foo_bar fooBar HTTPServer == != ::<T> ... </s>".split()


def random_line(source):
    """Words or characters of one or two scripts, with all kinds of gaps."""
    if source.random() < 0.5:
        parts = [source.choice(WORDS) for _ in range(source.randint(1, 8))]
    else:
        blocks = source.sample(SCRIPTS, 2)
        parts = []
        for _ in range(source.randint(1, 6)):
            low, high = source.choice(blocks)
            parts.append("".join(chr(source.randint(low, high)) for _ in range(source.randint(1, 5))))
    text = source.choice(JOINS)
    for part in parts:
        text += part + source.choice(JOINS)
    return text


def lines(count):
    """The torture list, lines of this project's code and texts, and random ones; the same as long as the project's are."""
    source = random.Random(6)
    written = []
    for pattern in ("*.md", "crates/text/src/*.rs", "fixtures/make/*.py", "fixtures/smollm2/texts/*.txt"):
        for file in sorted(ROOT.glob(pattern)):
            written += [line for line in file.read_text().splitlines() if line]
    source.shuffle(written)
    found = [*torture.TEXTS, *written[:count // 2]]
    while len(found) < count:
        found.append(random_line(source))
    # llama-cpp-python refuses the empty string.
    return [text for text in dict.fromkeys(found) if text]


def special_tokens(vocabulary):
    if vocabulary.is_dir():
        added = json.loads((vocabulary / "tokenizer.json").read_text())["added_tokens"]
        return [token["content"] for token in added]
    fields = GGUFReader(vocabulary).fields
    tokens, kinds = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type"))
    return [token for token, kind in zip(tokens, kinds) if kind in (3, 4)]


def special_lines(vocabulary, count):
    """Words between special tokens of this vocabulary, with all kinds of gaps."""
    source = random.Random(7)
    specials = special_tokens(vocabulary)
    found = []
    for _ in range(count if specials else 0):
        parts = [source.choice(source.choice([WORDS, JOINS, specials])) for _ in range(source.randint(1, 6))]
        found.append("".join([*parts, source.choice(specials), source.choice(JOINS), source.choice(WORDS)]))
    return list(dict.fromkeys(found))


def tiny_gguf(vocabulary, out):
    """A Llama of one layer with this file's tokenizer."""
    reader = GGUFReader(vocabulary)
    writer = GGUFWriter(out, "llama")
    for name, field in reader.fields.items():
        if name.startswith("tokenizer.ggml."):
            kind, inner = field.types[0], field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kind, inner)
    tokens = len(reader.fields["tokenizer.ggml.tokens"].data)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(tokens)
    writer.add_tensor("token_embd.weight", numpy.zeros((tokens, WIDTH), numpy.float16))
    writer.add_tensor("output_norm.weight", numpy.ones(WIDTH, numpy.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", numpy.zeros((WIDTH, WIDTH), numpy.float16))
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", numpy.ones(WIDTH, numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tiny_folder(vocabulary, out):
    """The same beside a folder's tokenizer; the weights are dummies."""
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (vocabulary / name).exists():
            shutil.copy(vocabulary / name, out)
    tokenizer = json.loads((vocabulary / "tokenizer.json").read_text())
    ids = [added["id"] for added in tokenizer["added_tokens"]]
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": WIDTH,
        "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": max([len(tokenizer["model"]["vocab"]) - 1, *ids]) + 1,
        "tie_word_embeddings": True, "torch_dtype": "float32", "hidden_act": "silu",
    }
    (out / "config.json").write_text(json.dumps(config))


class LlamaCpp:
    def __init__(self, path):
        import llama_cpp
        self.model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
        # Qwen's tokenizer.json composes characters first; llama.cpp leaves that out.
        composes = self.model.metadata.get("tokenizer.ggml.pre") == "qwen2"
        self.normalize = (lambda text: unicodedata.normalize("NFC", text)) if composes else (lambda text: text)

    def encode(self, text, specials):
        return self.model.tokenize(self.normalize(text).encode(), add_bos=False, special=specials)


class SentencePiece:
    """The library itself, with the pieces of a GGUF file whose model is `llama` or `t5`."""

    UNKNOWN, ADDED, UNUSED = 2, 4, 5

    def __init__(self, path):
        from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2 as proto
        fields = GGUFReader(path).fields
        field = lambda name: fields[f"tokenizer.ggml.{name}"].contents() if f"tokenizer.ggml.{name}" in fields else None
        unigram = field("model") == "t5"
        pieces = list(zip(field("tokens"), field("scores"), field("token_type")))
        self.added = [piece for piece, _, kind in pieces if kind == self.ADDED]
        unknown = next(index for index, piece in enumerate(pieces) if piece[2] == self.UNKNOWN)
        model = proto.ModelProto()
        for index, (piece, score, kind) in enumerate(pieces):
            # Added tokens are found before SentencePiece sees a text, so that it must not know of them; and it allows one
            # unknown token only.
            known = kind not in (self.ADDED, self.UNKNOWN) or index == unknown
            model.pieces.add(piece=piece, score=score, type=kind if known else self.UNUSED)
        model.trainer_spec.model_type = proto.TrainerSpec.UNIGRAM if unigram else proto.TrainerSpec.BPE
        model.trainer_spec.byte_fallback = not unigram
        model.normalizer_spec.add_dummy_prefix = field("add_space_prefix") is not False
        model.normalizer_spec.remove_extra_whitespaces = bool(field("remove_extra_whitespaces"))
        model.normalizer_spec.precompiled_charsmap = bytes(field("precompiled_charsmap") or b"")
        self.processor = SentencePieceProcessor(model_proto=model.SerializeToString())

    def encode(self, text, specials):
        return None if specials or any(piece in text for piece in self.added) else self.processor.encode(text)


class Transformers:
    def __init__(self, path):
        from transformers import AutoTokenizer
        self.library = AutoTokenizer.from_pretrained(path).backend_tokenizer
        self.library.no_padding()
        self.library.no_truncation()

    def encode(self, text, specials):
        self.library.encode_special_tokens = not specials
        return self.library.encode(text, add_special_tokens=False).ids


class Written:
    """The ids beside a vocabulary of llama.cpp's, by transformers."""

    SEPARATOR = "\n__ggml_vocab_test__\n"

    def __init__(self, path):
        texts = Path(f"{path}.inp").read_text().split(self.SEPARATOR)
        rows = Path(f"{path}.out").read_text().splitlines()
        self.ids = {text: list(map(int, row.split())) for text, row in zip(texts, rows)}

    def encode(self, text, specials):
        return None if specials else self.ids.get(text)


def others(vocabulary):
    if vocabulary.is_dir():
        return {"transformers": Transformers(vocabulary)}
    found = {"llama.cpp": LlamaCpp(vocabulary)}
    if GGUFReader(vocabulary).fields["tokenizer.ggml.model"].contents() in ("llama", "t5"):
        found["sentencepiece"] = SentencePiece(vocabulary)
    if Path(f"{vocabulary}.inp").exists():
        found["transformers, as llama.cpp's makers recorded it"] = Written(vocabulary)
    return found


def compare(binary, vocabulary, texts, show):
    with tempfile.TemporaryDirectory() as folder:
        if vocabulary.is_dir():
            model, flags = Path(folder), ["--load-format", "dummy"]
            tiny_folder(vocabulary, model)
        else:
            model, flags = Path(folder) / "tiny.gguf", []
            tiny_gguf(vocabulary, model)
        peers = others(vocabulary)
        written = [text for peer in peers.values() if isinstance(peer, Written) for text in peer.ids if text]
        cases = [(text, False) for text in dict.fromkeys([*texts, *written])]
        cases += [(text, True) for text in special_lines(vocabulary, len(texts) // 10)]
        with Server(binary, model, *flags) as server:
            ask = lambda text, specials: server.post("/tokenize", {"content": text, "parse_special": specials})["tokens"]
            ours = [ask(*case) for case in cases]
    result = {}
    for name, peer in peers.items():
        rows = [(text, specials, found, peer.encode(text, specials)) for (text, specials), found in zip(cases, ours)]
        rows = [row for row in rows if row[3] is not None]
        wrong = sorted((row for row in rows if row[2] != row[3]), key=lambda row: len(row[0]))
        shown = [dict(zip(("text", "special_tokens", "mettle", "other"), row)) for row in wrong[:show]]
        result[name] = {"lines": len(rows), "differ": len(wrong), "shortest": shown}
    return result


def versions():
    return {name: importlib.metadata.version(name) for name in ("llama-cpp-python", "sentencepiece", "transformers", "tokenizers")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("vocabulary", nargs="+", type=Path)
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--show", type=int, default=10)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    machine.end_children_when_killed()
    record = {"bench": "Token ids of real vocabularies", "commit": commit(arguments.binary), "peers": versions(), "vocabularies": {}}
    texts = lines(arguments.lines)
    differ = False
    for vocabulary in arguments.vocabulary:
        try:
            result = compare(arguments.binary, vocabulary, texts, arguments.show)
        except SystemExit as reason:
            result = {"failed": str(reason)}
        differ |= "failed" in result or any(one["differ"] for one in result.values())
        print(json.dumps({"vocabulary": vocabulary.name, "by": result}, ensure_ascii=True), flush=True)
        record["vocabularies"][vocabulary.name] = result
        if arguments.record:
            machine.write(str(RECORD), record)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
