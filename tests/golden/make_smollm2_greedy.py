#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes smollm2_greedy.json: greedy text of SmolLM2-135M-Instruct, by llama-cpp-python. Run by hand:

    make_smollm2_greedy.py SmolLM2-135M-Instruct.Q4_1.gguf      (needs llama-cpp-python)

A case holds the prompt and its ids, and for up to 64 greedy tokens (fewer only at an end token) the id, its
log-probability and the margin of log-probability to the second best.

'spread' tells how far the reference is from itself: the same tokens, fed to it again with fp32 instead of fp16 keys and
values, and one by one instead of as one batch. Both change nothing but roundings; what they do to a log-probability is
the noise of 8-bit activations in a model of this size, and no other program can be nearer than that.
"""
import json
import pathlib
import sys

import numpy as np
import llama_cpp.llama_cpp as low
from llama_cpp import Llama

N_TOKENS = 64
RAW = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "Water boils at a temperature of",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "The three primary colors are",
    "In 1969, the first humans",
    "1, 2, 3, 4, 5, 6, 7,",
    "Dear Sir or Madam,\n\nI am writing to",
    "Le petit chat est",
    "Q: What is the largest planet in the solar system?\nA:",
)
CHAT = (
    "What is the capital of France?",
    "Write a short poem about the moon.",
    "Explain why the sky is blue in two sentences.",
    "List five fruits.",
    "How do I boil an egg?",
    "What is 12 plus 30?",
    "Write a Python function that adds two numbers.",
    "Who wrote Romeo and Juliet?",
    "Give me three tips for learning a new language.",
    "Translate 'good morning' into Spanish.",
)
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def chat_text(question):
    """What the model's own template makes of one user message."""
    return (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n"
            "<|im_start|>assistant\n")


def plain_params(default=low.llama_model_default_params):
    """Without repacked weights: the AMX path of this version crashes on rows of 576."""
    params = default()
    params.use_extra_bufts = False
    return params


low.llama_model_default_params = plain_params


def load(path, **options):
    return Llama(path, n_ctx=2048, n_threads=1, n_threads_batch=1, verbose=False, logits_all=True, **options)


def last_logprobs(model):
    row = model.scores[model.n_tokens - 1].astype(np.float64)
    row -= row.max()
    return row - np.log(np.exp(row).sum())


def greedy(model, ids):
    model.reset()
    model.eval(ids)
    out = {"ids": [], "logprobs": [], "margins": []}
    while len(out["ids"]) < N_TOKENS:
        row = last_logprobs(model)
        best, second = np.argsort(-row)[:2]
        out["ids"].append(int(best))
        out["logprobs"].append(round(float(row[best]), 4))
        out["margins"].append(round(float(row[best] - row[second]), 4))
        if best == model.token_eos():
            break
        model.eval([int(best)])
    return out


def forced(model, prompt, ids, one_by_one):
    model.reset()
    everything = prompt + ids[:-1]
    for piece in [[t] for t in everything] if one_by_one else [everything]:
        model.eval(piece)
    rows = model.scores[len(prompt) - 1:model.n_tokens].astype(np.float64)
    rows -= rows.max(-1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
    return rows[np.arange(len(ids)), ids]


def main():
    path = sys.argv[1]
    model, wide = load(path), load(path, type_k=0, type_v=0)
    cases, spread = [], {"kv_f32": [], "one_batch": []}
    for kind, texts in (("raw", RAW), ("chat", CHAT)):
        for text in texts:
            full = chat_text(text) if kind == "chat" else text
            prompt = model.tokenize(full.encode(), add_bos=False, special=kind == "chat")
            case = greedy(model, prompt)
            print(len(cases), text, file=sys.stderr, flush=True)
            cases.append({"kind": kind, "text": text, "prompt": prompt, **case})
            spread["kv_f32"] += list(abs(forced(wide, prompt, case["ids"], True) - case["logprobs"]))
            spread["one_batch"] += list(abs(forced(model, prompt, case["ids"], False) - case["logprobs"]))
    means = {name: round(float(np.mean(values)), 4) for name, values in spread.items()}
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    out = pathlib.Path(__file__).parent / "smollm2_greedy.json"
    out.write_text(f'{{"spread":{json.dumps(means)},\n"cases":[\n{lines}\n]}}\n')
    print(means)


if __name__ == "__main__":
    main()
