#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes smollm2_greedy.json: greedy text of SmolLM2-135M-Instruct, by llama-cpp-python. Run by hand:

    make_smollm2_greedy.py SmolLM2-135M-Instruct.Q4_1.gguf      (needs llama-cpp-python, gguf; 600 MB in TMPDIR)

A case holds the prompt and its ids, and for up to 64 greedy tokens (fewer only at an end token) the id, its
log-probability, and the margin of log-probability to the best other token.

Rounding activations to 8 bits makes a model of this size noisy: two correct programs, or this reference with another
order of sums, differ by some hundredths in a log-probability and take other turns in open-ended text. So the reference
is run in four more ways that are as right as its default, over the text of the default, and 'margins' has the smallest
margin of all five: a place is a tie when any of them has its two best within 0.05, or prefers another token. Of the
candidates the 20 with the longest text before a tie are kept, whole answers first. 'spread' tells the mean difference
of each way from the default; 'turns' at how many candidates a way alone leaves the text of the default before that has
a tie by its own margins.
"""
import json
import pathlib
import sys
import tempfile

import gguf
import numpy as np
import llama_cpp.llama_cpp as low
from llama_cpp import Llama

N_TOKENS, N_CASES, TIE = 64, 20, 0.05
WAYS = {"one batch": "default", "fp32 keys and values": "kv_f32", "flash attention": "flash", "fp32 weights": "exact"}
FOX = "The quick brown fox jumps over the lazy dog. "
RAW = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "Water boils at a temperature of",
    "Le petit chat est",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,",
    "one two three four five six seven eight nine ten. one two three four five six seven eight nine ten. one two",
    "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z A B C D E F G H",
    FOX * 3,
    FOX * 2 + "The quick",
    "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday, Monday, Tuesday,",
    "January, February, March, April, May, June, July, August, September, October, November, December, January,",
    "2, 4, 6, 8, 10, 12, 14, 16, 18, 20,",
    "red green blue red green blue red green blue red green blue",
    "x = 0\nx = 1\nx = 2\nx = 3\nx = 4\nx = 5\n",
    "for i in range(10):\n    print(i)\nfor i in range(10):\n    print(i)\nfor i in range(10):\n",
    '{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}\n{"id": 3, "name": "c"}\n',
    "<li>one</li>\n<li>two</li>\n<li>one</li>\n<li>two</li>\n<li>one</li>\n",
    "#include <stdio.h>\n\nint main(void)\n{\n    printf(\"Hello, world",
    "Row, row, row your boat, gently down the stream. Row, row, row your boat, gently down the stream. Row, row,",
    "Q: 1+1? A: 2\nQ: 1+2? A: 3\nQ: 1+3? A: 4\nQ: 1+4? A: 5\nQ:",
    "caf\u00e9 d\u00e9j\u00e0 vu, caf\u00e9 d\u00e9j\u00e0 vu, caf\u00e9 d\u00e9j\u00e0 vu, caf\u00e9",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u4f60\u597d\uff0c\u4e16\u754c\u3002\u4f60\u597d\uff0c",
    "\U0001f600 \U0001f680 \U0001f600 \U0001f680 \U0001f600 \U0001f680",
)
CHAT = (
    "What is the capital of France?",
    "List five fruits.",
    "What is 12 plus 30?",
    "Who wrote Romeo and Juliet?",
    "Count from 1 to 40, separated by commas.",
    "Count from 1 to 20.",
    "List the days of the week.",
    "List the months of the year.",
    "What are the letters of the alphabet?",
    f"Repeat this text: {FOX}",
    f"Say this three times: {FOX}",
    "Repeat after me: one two three four five six seven eight nine ten",
    "Write the numbers 1, 2, 3, 4, 5 ten times.",
    "Continue: 2, 4, 6, 8, 10, 12, 14, 16,",
    "Continue this list: a, b, c, a, b, c, a, b, c,",
    "Write a hello world program in Python.",
    "Write a hello world program in C.",
    "Write a Python loop that prints the numbers from 1 to 10.",
    "Copy exactly: 3 1 4 1 5 9 2 6 5 3 5 8 9 7 9 3 2 3 8 4 6",
    "What is the chemical symbol of water?",
    "Write 'yes' twenty times.",
    "Translate to uppercase: hello world hello world hello world",
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
    return Llama(str(path), n_ctx=512, n_threads=1, n_threads_batch=1, verbose=False, logits_all=True, **options)


def write_exact(path, out):
    """The same weights as fp32, so that no activation is rounded."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        kind = field.types[0]
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        writer.add_key_value(key, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        rows = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(*reversed(tensor.shape.tolist()))
        writer.add_tensor(tensor.name, rows.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def log_softmax(rows):
    rows = rows.astype(np.float64)
    rows -= rows.max(-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(-1, keepdims=True))


def greedy(model, ids):
    model.reset()
    model.eval(ids)
    out = {"ids": [], "logprobs": [], "margins": []}
    while len(out["ids"]) < N_TOKENS:
        row = log_softmax(model.scores[model.n_tokens - 1])
        best, second = np.argsort(-row)[:2]
        out["ids"].append(int(best))
        out["logprobs"].append(round(float(row[best]), 4))
        out["margins"].append(float(row[best] - row[second]))
        if best == model.token_eos():
            break
        model.eval([int(best)])
    return out


def first_tie(margins):
    return next((i for i, margin in enumerate(margins) if margin < TIE), len(margins))


def compare(model, prompt, case):
    """Over the text of the default: mean difference of log-probabilities, margins, does it turn before a tie?"""
    model.reset()
    model.eval(prompt + case["ids"][:-1])
    rows = log_softmax(model.scores[len(prompt) - 1:model.n_tokens])
    places = np.arange(len(rows))
    taken = rows[places, case["ids"]]
    rows[places, case["ids"]] = -np.inf
    margins = taken - rows.max(-1)
    turns = bool((margins[:first_tie(case["margins"])] < 0).any())
    return float(np.abs(taken - case["logprobs"]).mean()), margins, turns


def run_candidate(models, kind, text):
    full = chat_text(text) if kind == "chat" else text
    prompt = models["default"].tokenize(full.encode(), add_bos=False, special=kind == "chat")
    case = greedy(models["default"], prompt)
    ways = {way: compare(models[name], prompt, case) for way, name in WAYS.items()}
    smallest = np.min([case["margins"]] + [margins for _, margins, _ in ways.values()], axis=0)
    case["margins"] = [round(float(margin), 4) for margin in smallest]
    print(kind, repr(text), first_tie(smallest), len(smallest), file=sys.stderr, flush=True)
    return {"kind": kind, "text": text, "prompt": prompt, **case}, ways


def pick(results):
    def rank(result):
        margins = result[0]["margins"]
        tie = first_tie(margins)
        return tie == len(margins), tie

    kept = sorted(results, key=rank, reverse=True)[:N_CASES]
    return [r for r in results if any(r is k for k in kept)]


def spread(results):
    return {way: round(float(np.mean([r[1][way][0] for r in results])), 4) for way in WAYS}


def main():
    path = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        exact = pathlib.Path(folder) / "exact.gguf"
        write_exact(path, exact)
        models = {"default": load(path), "kv_f32": load(path, type_k=0, type_v=0), "flash": load(path, flash_attn=True),
                  "exact": load(exact, type_k=0, type_v=0)}
        results = [run_candidate(models, kind, text) for kind, texts in (("raw", RAW), ("chat", CHAT)) for text in texts]
    kept = pick(results)
    head = {"candidates": len(results), "spread_of_candidates": spread(results), "spread_of_kept": spread(kept),
            "turns": {way: sum(r[1][way][2] for r in results) for way in WAYS}}
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case, _ in kept)
    out = pathlib.Path(__file__).parent / "smollm2_greedy.json"
    out.write_text(json.dumps(head)[:-1] + f',\n"cases":[\n{lines}\n]}}\n')
    print(len(kept), head)


if __name__ == "__main__":
    main()
