# SPDX-License-Identifier: Apache-2.0
"""usage: peer_greedy.py MODEL N_TOKENS [f32] <PROMPTS.json
llama.cpp's greedy tokens for prompts of token ids, with the log-probability of each and its margin to the second best, as
JSON; for a Python that has llama-cpp-python. f32: fp32 instead of f16 keys and
values. Repacked weights stay off: their AMX path crashes on rows of 576."""
import json
import sys

import llama_cpp.llama_cpp as low
import numpy as np
from llama_cpp import Llama


def plain_params(default=low.llama_model_default_params):
    params = default()
    params.use_extra_bufts = False
    return params


def log_softmax(row):
    row = row.astype(np.float64) - row.max()
    return row - np.log(np.exp(row).sum())


def greedy(model, prompt, n_tokens):
    model.reset()
    model.eval(prompt)
    out = []
    while len(out) < n_tokens:
        row = log_softmax(model.scores[model.n_tokens - 1])
        best, second = (int(i) for i in np.argsort(-row)[:2])
        out.append({"id": best, "logprob": float(row[best]), "margin": float(row[best] - row[second])})
        if best == model.token_eos():
            break
        model.eval([best])
    return out


low.llama_model_default_params = plain_params


def load(path, **options):
    return Llama(path, n_ctx=512, n_threads=1, n_threads_batch=1, verbose=False, logits_all=True, **options)


if __name__ == "__main__":
    model = load(sys.argv[1], **({"type_k": 0, "type_v": 0} if sys.argv[3:] == ["f32"] else {}))
    json.dump([greedy(model, prompt, int(sys.argv[2])) for prompt in json.load(sys.stdin)], sys.stdout)
