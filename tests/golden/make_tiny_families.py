#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tiny_families.json: log-probabilities of tiny random-weight models of each family, by transformers. Run by hand:

    make_tiny_families.py BUILD/tests/support/make_tiny_model      (needs torch, transformers, gguf, llama-cpp-python)

The weights follow from a seed and the tensors' names (tests/support/tiny_model.c; make_tiny_llama.py checks them bit by
bit). The test program writes a file, and this script loads its tensors into the family's model of transformers. Contexts
are longer than the windows. llama.cpp reads the same file, which shows that its keys and names mean what others mean by
them; it computes in less precision, so it is only compared. It takes no Phi 3 without tokens that this vocabulary lacks,
and reads neither yarn_beta_fast nor yarn_attn_factor for these families.

A case holds the settings for tiny_model_set, the token ids, the log-probability of each next token, and all of the last
row's.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import llama_cpp
import numpy as np
import torch
import transformers

N_TOKENS, MAX_TOLD = 72, 0.02
CASES = (
    {"arch": "qwen2", "tied": 1, "qkv_bias": 1, "rope_base": 1000000},
    {"arch": "qwen2", "tied": 0, "qkv_bias": 1, "heads": 8, "kv_heads": 1, "head_dim": 8},
    {"arch": "qwen3", "tied": 1, "head_dim": 32, "kv_heads": 1},
    {"arch": "qwen3", "tied": 0},
    {"arch": "gemma2", "window": 20, "layers": 4},
    {"arch": "gemma2", "window": 7, "layers": 3, "head_dim": 24, "kv_heads": 4},
    {"arch": "gemma3", "window": 12, "layers": 7, "rope_base": 1000000},
    {"arch": "gemma3", "window": 33, "layers": 6, "head_dim": 24, "kv_heads": 1, "rope_base": 1000000},
    {"arch": "phi3", "tied": 0},
    {"arch": "phi3", "tied": 1, "window": 30, "rope_dim": 12},
    {"arch": "phi3", "tied": 0, "original_context": 64},
    {"arch": "phi3", "tied": 0, "original_context": 256, "context": 256, "rope_dim": 8},
    {"arch": "llama", "tied": 0, "head_dim": 32},
    {"arch": "llama", "yarn": 8, "original_context": 64, "head_dim": 32},
    {"arch": "qwen2", "qkv_bias": 1, "yarn": 4, "original_context": 128, "rope_base": 1000000},
    {"arch": "qwen3", "yarn": 4, "original_context": 64, "yarn_beta_fast": 4, "yarn_attn_factor": 1.25},
)
DEFAULTS = {"layers": 2, "embd": 64, "ff": 128, "heads": 4, "kv_heads": 2, "head_dim": 16, "context": 512,
            "rope_base": 10000, "tied": 1, "qkv_bias": 0, "window": 0, "original_context": 0, "rope_dim": 0, "yarn": 0, "yarn_beta_fast": 0, "yarn_attn_factor": 0}
CLASSES = {"qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
           "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
           "gemma2": (transformers.Gemma2Config, transformers.Gemma2ForCausalLM),
           "gemma3": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
           "phi3": (transformers.Phi3Config, transformers.Phi3ForCausalLM),
           "llama": (transformers.MistralConfig, transformers.MistralForCausalLM)}
NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "attn_norm": "input_layernorm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_norm": "post_attention_layernorm"}
WITH_POST_NORMS = {"ffn_norm": "pre_feedforward_layernorm", "post_attention_norm": "post_attention_layernorm",
                   "post_ffw_norm": "post_feedforward_layernorm"}
FUSED = {"ffn_up": "mlp.gate_up_proj"}


def make_config(case, tensors):
    arch, head_dim = case["arch"], case["head_dim"]
    settings = {"vocab_size": len(tensors["token_embd.weight"]), "hidden_size": case["embd"],
                "intermediate_size": case["ff"], "num_hidden_layers": case["layers"],
                "num_attention_heads": case["heads"], "num_key_value_heads": case["kv_heads"], "head_dim": head_dim,
                "max_position_embeddings": case["context"], "rms_norm_eps": 1e-5, "pad_token_id": 0,
                "tie_word_embeddings": bool(case["tied"]), "attn_implementation": "eager"}
    rope = {"rope_type": "default", "rope_theta": float(case["rope_base"])}
    if arch.startswith("gemma"):
        settings |= {"query_pre_attn_scalar": head_dim, "sliding_window": case["window"]}
    if arch == "gemma3":
        rope = {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    if arch in ("phi3", "llama"):
        settings["sliding_window"] = case["window"] or None
    if arch == "phi3":
        rope["partial_rotary_factor"] = (case["rope_dim"] or head_dim) / head_dim
        if case["original_context"]:
            settings["original_max_position_embeddings"] = case["original_context"]  # it overrides the other
            rope |= {"rope_type": "longrope", "original_max_position_embeddings": case["original_context"],
                     "short_factor": tensors["rope_factors_short.weight"].tolist(),
                     "long_factor": tensors["rope_factors_long.weight"].tolist()}
    if case["yarn"]:
        rope |= {"rope_type": "yarn", "factor": float(case["yarn"]), "original_max_position_embeddings": case["original_context"],
                 "beta_fast": case["yarn_beta_fast"] or None, "attention_factor": case["yarn_attn_factor"] or None}
    return CLASSES[arch][0](**settings, rope_parameters=rope)


def make_state(case, tensors):
    arch = case["arch"]
    names = NAMES | (WITH_POST_NORMS if arch.startswith("gemma") else {}) | (FUSED if arch == "phi3" else {})
    fixed = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}
    state = {}
    for name, rows in tensors.items():
        if name.startswith("rope_factors"):
            continue
        rows = torch.from_numpy(rows)
        if arch.startswith("gemma") and "norm" in name:
            rows = rows - 1  # the file has 1 + w
        if arch == "llama" and (".attn_q." in name or ".attn_k." in name):  # from pairs (2r, 2r+1) to (r, r + d/2)
            rows = rows.reshape(-1, case["head_dim"] // 2, 2, case["embd"]).swapaxes(1, 2).reshape(rows.shape)
        if name in fixed:
            state[fixed[name]] = rows
        else:
            _, layer, part, kind = name.split(".")
            state[f"model.layers.{layer}.{names[part]}.{kind}"] = rows
    if case["tied"]:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


def make_logprobs(case, tensors, ids):
    config = make_config(case, tensors)
    model = CLASSES[case["arch"]][1](config)
    model.load_state_dict(make_state(case, tensors), strict=True)
    with torch.no_grad():
        logits = model.eval().double()(torch.tensor([ids]), use_cache=False).logits[0]
    return torch.log_softmax(logits, -1)


def plain_params():
    params = DEFAULT_PARAMS()
    params.use_extra_bufts = False
    return params


DEFAULT_PARAMS = llama_cpp.llama_cpp.llama_model_default_params
llama_cpp.llama_cpp.llama_model_default_params = plain_params


def compare_with_llama_cpp(case, path, ids, logprobs):
    other = llama_cpp.Llama(str(path), n_ctx=case["context"], logits_all=True, verbose=False, swa_full=True)
    other.eval(ids)
    theirs = torch.log_softmax(torch.from_numpy(np.array(other.scores[:len(ids)])).double(), -1)
    worst = (theirs - logprobs).abs().max().item()
    print(case["arch"], {k: v for k, v in case.items() if DEFAULTS.get(k) != v}, f"llama.cpp differs by {worst:.2g}")
    assert worst < MAX_TOLD


def make_case(tool, changes, folder):
    case, path = DEFAULTS | changes, folder / "tiny.gguf"
    settings = [f"{k}={v}" for k, v in changes.items()]
    subprocess.run([tool, path, *settings], check=True)
    tensors = {t.name: np.array(t.data) for t in gguf.GGUFReader(path).tensors}
    n_vocab = len(tensors["token_embd.weight"])
    ids = [(17 + i * i * 31 + i * 7) % n_vocab for i in range(N_TOKENS)]
    logprobs = make_logprobs(case, tensors, ids)
    if case["arch"] != "phi3" and not case["yarn_attn_factor"]:
        compare_with_llama_cpp(case, path, ids, logprobs)
    following = logprobs[torch.arange(N_TOKENS - 1), torch.tensor(ids[1:])]
    return {"settings": settings, "ids": ids, "next": [round(x, 6) for x in following.tolist()],
            "last": [round(x, 6) for x in logprobs[-1].tolist()]}


def main():
    with tempfile.TemporaryDirectory() as folder:
        cases = [make_case(sys.argv[1], case, pathlib.Path(folder)) for case in CASES]
    text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (pathlib.Path(__file__).parent / "tiny_families.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
