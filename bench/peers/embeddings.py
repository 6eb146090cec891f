"""Compares the embeddings of a running server with transformers' in f32 (mean over tokens, length 1).

    mettle serve FOLDER --port 8000
    python embeddings.py FOLDER http://127.0.0.1:8000

FOLDER is a BERT encoder that pools by the mean, such as all-MiniLM-L6-v2. Prints the largest |difference| of an element and the
smallest cosine over the texts below, and whether a text's vector is the same bits alone and among the others.
"""

import json
import sys
import urllib.request

import numpy
import torch
from transformers import AutoModel, AutoTokenizer

SENTENCE = "The history of the railway begins with wooden tracks in mines, on which carts were drawn by horses."
TEXTS = [
    "What is the capital of Germany?",
    "Berlin is the capital and largest city of Germany.",
    "The quick brown fox jumps over the lazy dog.",
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "A woman is playing violin.",
    "Two men pushed carts through the woods.",
    "def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)",
    "Grüße aus Köln! Où est l'été?",
    "北京是中国的首都。",
    "Москва — столица России.",
    "12345 67890 3.14159",
    "!!! ??? ...",
    "a",
    "Supercalifragilisticexpialidocious antidisestablishmentarianism",
    "Write to someone@example.com or visit http://example.com/path?query=1.",
    "It's raining; they're sure that we've had snow — isn't it odd?",
    "Mixed CASE text WITH Ünïcödé and emoji 🙂 inside.",
    " ".join([SENTENCE] * 11),
]


def served(url, texts):
    body = json.dumps(dict(input=texts)).encode()
    request = urllib.request.Request(f"{url}/v1/embeddings", body, {"Content-Type": "application/json"})
    data = json.load(urllib.request.urlopen(request))["data"]
    return [numpy.array(each["embedding"], dtype=numpy.float32) for each in data]


@torch.no_grad()
def expected(tokenizer, model, text):
    inputs = tokenizer(text, return_tensors="pt")
    vector = model(**inputs).last_hidden_state[0].double().mean(dim=0)
    return inputs["input_ids"].shape[1], (vector / vector.norm()).numpy()


def main(folder, url):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    found = served(url, TEXTS)
    lengths, wanted = zip(*(expected(tokenizer, model, text) for text in TEXTS))
    largest = max(abs(f - w).max() for f, w in zip(found, wanted))
    cosine = min(f @ w / numpy.linalg.norm(f) for f, w in zip(found, wanted))
    alone = [served(url, [text])[0] for text in TEXTS]
    same = all(numpy.array_equal(a, b) for a, b in zip(alone, found))
    print(f"{len(TEXTS)} texts of {min(lengths)} to {max(lengths)} tokens: largest difference {largest:.2e}, "
          f"smallest cosine {cosine:.9f}, alone and together the same bits: {same}")


if __name__ == "__main__":
    main(*sys.argv[1:])
