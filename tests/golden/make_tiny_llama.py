#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tiny_llama.json: log-probabilities of tiny random-weight Llamas, by transformers. Run by hand:

    make_tiny_llama.py BUILD/tests/support/make_tiny_model      (needs torch, transformers, gguf)

The weights follow from a seed and the tensors' names (tests/support/tiny_model.c), so none are stored. This script forms
them a second time with numpy, loads them into a LlamaForCausalLM, exports that model to a GGUF with the `gguf` package,
and first of all checks that the test program wrote the same tensors, bit by bit.

A case holds the settings for tiny_model_set, the token ids, the log-probability of each next token, and all of the last
row's.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

SEED, N_LAYERS, N_EMBD, N_FF, HEAD_DIM, CONTEXT, ROPE_BASE, N_TOKENS = 1, 2, 64, 128, 16, 512, 10000.0, 72
CASES = (
    {"tied": 1, "rope_freqs": 0, "qkv_bias": 0, "heads": 4, "kv_heads": 2},
    {"tied": 0, "rope_freqs": 0, "qkv_bias": 0, "heads": 4, "kv_heads": 4},
    {"tied": 1, "rope_freqs": 1, "qkv_bias": 0, "heads": 4, "kv_heads": 1},
    {"tied": 0, "rope_freqs": 1, "qkv_bias": 1, "heads": 8, "kv_heads": 2},
)
N_SPECIAL = 3
F32 = np.float32


def normals(name, n):
    """SplitMix64 from a state that hashes the name; four 16-bit fields are summed and scaled to variance 1."""
    mask = (1 << 64) - 1
    state = SEED
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) & mask
    with np.errstate(over="ignore"):
        z = np.uint64(state) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    total = sum(((z >> np.uint64(16 * i)) & np.uint64(0xFFFF)).astype(np.int64) for i in range(4))
    return (total - 2 * 65535).astype(F32) * (F32(1.7320508) / F32(65536))


def matrix(name, n_rows, n_cols):
    return (F32(1) / np.sqrt(F32(n_cols)) * normals(name, n_rows * n_cols)).reshape(n_rows, n_cols)


def embedding(name, n_vocab):
    scale = F32(2) / np.sqrt(F32(N_EMBD))
    rows = normals(name, n_vocab * N_EMBD).reshape(n_vocab, N_EMBD)
    return rows * np.where(np.arange(n_vocab)[:, None] < N_SPECIAL, scale / F32(10), scale)


def vector(name, n, mean):
    return F32(mean) + F32(0.1) * normals(name, n)


def gguf_tensors(case, n_vocab):
    """Everything but rope_freqs, by the file's names and in its row order (pairs interleaved)."""
    q, kv = case["heads"] * HEAD_DIM, case["kv_heads"] * HEAD_DIM
    tensors = {"token_embd.weight": embedding("token_embd.weight", n_vocab),
               "output_norm.weight": vector("output_norm.weight", N_EMBD, 1)}
    if not case["tied"]:
        tensors["output.weight"] = embedding("output.weight", n_vocab)
    for i in range(N_LAYERS):
        for name, rows, cols in (("attn_q", q, N_EMBD), ("attn_k", kv, N_EMBD), ("attn_v", kv, N_EMBD),
                                 ("attn_output", N_EMBD, q), ("ffn_gate", N_FF, N_EMBD), ("ffn_up", N_FF, N_EMBD),
                                 ("ffn_down", N_EMBD, N_FF)):
            tensors[f"blk.{i}.{name}.weight"] = matrix(f"blk.{i}.{name}.weight", rows, cols)
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{i}.{name}.weight"] = vector(f"blk.{i}.{name}.weight", N_EMBD, 1)
        if case["qkv_bias"]:
            for name, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
                tensors[f"blk.{i}.{name}.bias"] = vector(f"blk.{i}.{name}.bias", rows, 0)
    return tensors


def to_half_split(rows):
    """From pairs (2r, 2r+1) of a head, as the file has them, to (r, r + d/2), as transformers does."""
    heads = rows.reshape(-1, HEAD_DIM // 2, 2, *rows.shape[1:])
    return heads.swapaxes(1, 2).reshape(rows.shape)


def to_interleaved(rows):
    heads = rows.reshape(-1, 2, HEAD_DIM // 2, *rows.shape[1:])
    return heads.swapaxes(1, 2).reshape(rows.shape)


NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def their_name(name):
    fixed = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}
    if name in fixed:
        return fixed[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.{kind}"


def is_rotated(name):
    return ".attn_q." in name or ".attn_k." in name


def make_model(case, tensors, n_vocab):
    rope = {"rope_type": "default", "rope_theta": ROPE_BASE}
    if case["rope_freqs"]:
        rope |= {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                 "original_max_position_embeddings": CONTEXT}
    config = LlamaConfig(vocab_size=n_vocab, hidden_size=N_EMBD, intermediate_size=N_FF, num_hidden_layers=N_LAYERS,
                         num_attention_heads=case["heads"], num_key_value_heads=case["kv_heads"], head_dim=HEAD_DIM,
                         max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, tie_word_embeddings=bool(case["tied"]),
                         attention_bias=bool(case["qkv_bias"]), rope_parameters=rope, attn_implementation="eager")
    model = LlamaForCausalLM(config)
    state = {their_name(n): torch.from_numpy(to_half_split(x) if is_rotated(n) else x) for n, x in tensors.items()}
    if case["tied"]:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    if case["qkv_bias"]:
        state |= {f"model.layers.{i}.self_attn.o_proj.bias": torch.zeros(N_EMBD) for i in range(N_LAYERS)}
    model.load_state_dict(state, strict=True)
    return model.eval()


def export(model, case, path):
    """The usual conversion: rows of Q and K go back to interleaved pairs, Llama 3's scaling becomes divisors."""
    writer = gguf.GGUFWriter(path, "llama")
    state = model.state_dict()
    for name in gguf_tensors(case, model.config.vocab_size):
        rows = state[their_name(name)].numpy()
        writer.add_tensor(name, to_interleaved(rows) if is_rotated(name) else rows)
    if case["rope_freqs"]:
        plain = ROPE_BASE ** (-torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)
        divisors = plain / model.model.rotary_emb.inv_freq.double()
        writer.add_tensor("rope_freqs.weight", divisors.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_same(ours, exported):
    a, b = ({t.name: np.array(t.data) for t in gguf.GGUFReader(p).tensors} for p in (ours, exported))
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    for name in a:
        same = np.allclose(a[name], b[name], rtol=1e-6, atol=0) if name == "rope_freqs.weight" \
            else np.array_equal(a[name], b[name])
        assert same, f"{name} differs between the test program and the exported model"


def make_case(tool, case, folder):
    settings = [f"{k}={v}" for k, v in case.items()]
    ours, exported = folder / "ours.gguf", folder / "exported.gguf"
    subprocess.run([tool, ours, *settings], check=True)
    n_vocab = int(gguf.GGUFReader(ours).fields["llama.vocab_size"].contents())
    model = make_model(case, gguf_tensors(case, n_vocab), n_vocab)
    export(model, case, exported)
    check_same(ours, exported)
    ids = [(17 + i * i * 31 + i * 7) % n_vocab for i in range(N_TOKENS)]
    with torch.no_grad():
        logits = model.double()(torch.tensor([ids])).logits[0]
    logprobs = torch.log_softmax(logits, -1)
    following = logprobs[torch.arange(N_TOKENS - 1), torch.tensor(ids[1:])]
    return {"settings": settings, "ids": ids, "next": [round(x, 6) for x in following.tolist()],
            "last": [round(x, 6) for x in logprobs[-1].tolist()]}


def main():
    with tempfile.TemporaryDirectory() as folder:
        cases = [make_case(sys.argv[1], case, pathlib.Path(folder)) for case in CASES]
    text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (pathlib.Path(__file__).parent / "tiny_llama.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
