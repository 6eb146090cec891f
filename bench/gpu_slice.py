#!/usr/bin/env python3
"""Measures the GPU path on one NVIDIA card, next to PyTorch on the same card, and prints one table.

    cargo build --release --features cuda
    python3 bench/gpu_slice.py target/release/mettle > bench/records/gpu_slice.json

Needs PyTorch with CUDA for the ceilings and the peer. The model has the shape of an 8B Llama in bf16 with random weights;
contexts are 512 tokens. The peer is the same model written plainly in PyTorch: each layer compiled with torch.compile,
the decode step captured in a CUDA graph, scaled_dot_product_attention, cuBLAS. Times are the best of several runs, the
two alternate where they take turns at all (decode and prefill: Mettle, PyTorch, Mettle). The table goes to stderr, the
record to stdout.
"""
import json, pathlib, subprocess, sys, time

HERE = pathlib.Path(__file__).resolve().parent
LAYERS, HIDDEN, INTER, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 32, 4096, 14336, 32, 8, 128, 128256
CONTEXT = 512


def best_seconds(torch, run, rounds=5, inner=10):
    run()
    torch.cuda.synchronize()
    best = float("inf")
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(inner):
            run()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) / 1e3 / inner)
    return best


def ceilings(torch):
    """What the card itself reaches: copying, matrix-vector products and matrix products by cuBLAS."""
    found = {}
    a = torch.empty(1 << 31, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    found["copy_tb_s"] = 2 * a.numel() / best_seconds(torch, lambda: b.copy_(a)) / 1e12
    del a, b
    for m, n, k in [(1, 28672, 4096), (1, 4096, 4096), (1, 4096, 14336), (16, 28672, 4096), (8192, 4096, 4096), (8192, 28672, 4096)]:
        copies = max(1, min(32, (1 << 30) // (n * k * 2)))
        w = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
        x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)

        def run():
            for i in range(32):
                torch.mm(x, w[i % copies].t(), out=out)

        seconds = best_seconds(torch, run, inner=1) / 32
        found[f"cublas_{m}x{n}x{k}"] = {
            "tb_s": (n * k + m * k + m * n) * 2 / seconds / 1e12,
            "tflop_s": 2 * m * n * k / seconds / 1e12,
        }
    return found


class Peer:
    """An 8B Llama in plain PyTorch."""

    def __init__(self, torch, batch, length):
        self.torch, self.batch = torch, batch
        F = torch.nn.functional
        make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16) / shape[-1] ** 0.5
        kv = KV_HEADS * HEAD_DIM
        one = lambda: (make(HIDDEN + 2 * kv, HIDDEN), make(HIDDEN, HIDDEN), make(2 * INTER, HIDDEN), make(HIDDEN, INTER),
                       torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16), torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16))
        self.weights = [one() for _ in range(LAYERS)]
        self.embedding, self.head = make(VOCAB, HIDDEN), make(VOCAB, HIDDEN)
        self.norm = torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16)
        self.cache = [torch.zeros(2, batch, KV_HEADS, length, HEAD_DIM, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
        angles = torch.outer(torch.arange(length, device="cuda").float(), 500000.0 ** (-torch.arange(0, HEAD_DIM, 2, device="cuda").float() / HEAD_DIM))
        self.cos, self.sin = angles.cos(), angles.sin()

        def norm(x, w):
            y = x.float()
            return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * w

        def rotate(x, cos, sin):
            a, b = x.float().chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

        def layer(h, w_qkv, w_o, w_gu, w_down, n1, n2, cache, positions, cos, sin, mask):
            b, t, _ = h.shape
            q, k, v = F.linear(norm(h, n1), w_qkv).split((HIDDEN, kv, kv), -1)
            q = rotate(q.view(b, t, HEADS, HEAD_DIM).transpose(1, 2), cos, sin)
            k = rotate(k.view(b, t, KV_HEADS, HEAD_DIM).transpose(1, 2), cos, sin)
            v = v.view(b, t, KV_HEADS, HEAD_DIM).transpose(1, 2)
            cache[0].index_copy_(2, positions, k)
            cache[1].index_copy_(2, positions, v)
            if t == 1:
                a = F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=mask, enable_gqa=True)
            else:
                a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            h = h + F.linear(a.transpose(1, 2).reshape(b, t, HIDDEN), w_o)
            gate, up = F.linear(norm(h, n2), w_gu).chunk(2, -1)
            return h + F.linear(F.silu(gate) * up, w_down)

        self.layer = torch.compile(layer, fullgraph=True)
        self.head_of = torch.compile(lambda h, n, w: F.linear(norm(h, n), w).argmax(-1))

    def step(self, ids, positions, mask):
        torch = self.torch
        h = torch.nn.functional.embedding(ids, self.embedding)
        cos, sin = self.cos[positions], self.sin[positions]
        for weights, cache in zip(self.weights, self.cache):
            h = self.layer(h, *weights, cache, positions, cos, sin, mask)
        return self.head_of(h[:, -1:], self.norm, self.head)

    def decode_seconds(self):
        torch = self.torch
        ids = torch.zeros(self.batch, 1, dtype=torch.long, device="cuda")
        positions = torch.tensor([CONTEXT], device="cuda")
        mask = (torch.arange(self.cache[0].shape[3], device="cuda") <= CONTEXT)[None, None, None]
        side = torch.cuda.Stream()
        with torch.cuda.stream(side), torch.no_grad():
            for _ in range(3):
                self.step(ids, positions, mask)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            out = self.step(ids, positions, mask)

        def run():
            graph.replay()
            out.cpu()  # as a server does: the token goes to the host

        return best_seconds(torch, run)

    def prefill_seconds(self):
        torch = self.torch
        ids = torch.zeros(self.batch, CONTEXT, dtype=torch.long, device="cuda")
        positions = torch.arange(CONTEXT, device="cuda")
        with torch.no_grad():
            return best_seconds(torch, lambda: self.step(ids, positions, None), inner=2)


def mettle(binary, *arguments):
    command = [binary, "bench", *map(str, arguments), "--json", "--device", "cuda"]
    out = subprocess.run(command, capture_output=True, text=True, timeout=400)
    if out.returncode:
        raise SystemExit(f"{' '.join(command)}\n{out.stderr}")
    return [json.loads(line) for line in out.stdout.splitlines()]


def latency(binary, batch, tokens, *more):
    model = HERE / "configs/llama-8b"
    return mettle(binary, "latency", "-m", model, "--load-format", "dummy", "--batch", batch, "--input-len", CONTEXT,
                  "--output-len", 64, "--max-num-batched-tokens", tokens, "--repeats", 5, *more)[0]


def main():
    binary = sys.argv[1]
    import torch
    import torch._dynamo
    torch._dynamo.config.cache_size_limit = 64
    record = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "command": " ".join(sys.argv)}
    log = lambda text: print(text, file=sys.stderr, flush=True)
    record["ceilings"] = ceilings(torch)
    record["kernels"] = [row for m in (1, 16, 8192) for row in mettle(binary, "kernels", "--filter", f"linear/bf16/{m}x")]
    for name in ("q8_0", "q4_1"):
        record["kernels"] += mettle(binary, "kernels", "--filter", f"linear/{name}/1x")
    runs = {1: latency(binary, 1, 512, "--kernels"), 16: latency(binary, 16, 8192, "--kernels")}
    peer = {}
    for batch in (1, 16):
        model = Peer(torch, batch, CONTEXT + 64)
        peer[batch] = {"decode": batch / model.decode_seconds()}
        if batch == 16:
            peer[batch]["prefill"] = batch * CONTEXT / model.prefill_seconds()
        del model
        torch.cuda.empty_cache()
    for batch, tokens in ((1, 512), (16, 8192)):
        again = latency(binary, batch, tokens)
        for key in ("decode_tokens_per_second", "prefill_tokens_per_second"):
            runs[batch][key] = max(runs[batch][key], again[key])
    record["mettle"], record["pytorch"] = runs, peer
    # All but the table of embeddings, of which a token reads one row.
    weights = runs[1]["weight_bytes"] - VOCAB * HIDDEN * 2
    copy = record["ceilings"]["copy_tb_s"]
    decode = runs[1]["decode_tokens_per_second"]
    log(f"{record['device']}, copy {copy:.2f} TB/s, torch {record['torch']}")
    log(f"{'':34} {'Mettle':>10} {'PyTorch':>10} {'ratio':>6} {'goal':>6}")
    rows = [("decode, batch 1, tok/s", decode, peer[1]["decode"], 200),
            ("decode, batch 16, tok/s", runs[16]["decode_tokens_per_second"], peer[16]["decode"], 1600),
            ("prefill, 16 x 512, tok/s", runs[16]["prefill_tokens_per_second"], peer[16]["prefill"], 8000)]
    for name, ours, theirs, goal in rows:
        log(f"{name:34} {ours:10.0f} {theirs:10.0f} {ours / theirs:6.2f} {goal:6}")
    log(f"weights streamed at batch 1: {decode * weights / 1e12:.2f} TB/s, {decode * weights / 1e12 / copy:.0%} of the copy rate")
    log(f"{'product alone':44} {'TB/s':>6} {'TFLOP/s':>8}   cuBLAS TB/s, TFLOP/s")
    for row in record["kernels"]:
        tb, tf = row["bytes"] / row["seconds"] / 1e12, row["operations"] / row["seconds"] / 1e12
        vendor = record["ceilings"].get(f"cublas_{row['m']}x{row['n']}x{row['k']}")
        beside = f"{vendor['tb_s']:6.2f} {vendor['tflop_s']:8.1f}" if vendor and "bf16" in row["kernel"] else ""
        log(f"{row['kernel']:28} {row['m']}x{row['n']}x{row['k']:<6} {tb:6.2f} {tf:8.1f}   {beside}")
    for batch in (1, 16):
        for kind in ("decode_kernels", "prefill_kernels"):
            log(f"batch {batch}, {kind}: " + ", ".join(f"{k['kernel']} {k['calls']}x {k['milliseconds']:.2f} ms" for k in runs[batch][kind][:8]))
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
