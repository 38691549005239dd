#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes gemma3.json: a text that is longer than the window of Gemma 3 270M, by llama-cpp-python. Run by hand:

    make_gemma3.py gemma-3-270m-q4_k_m.gguf        (needs llama-cpp-python)

The log-probability of each next token is kept. The reference then reads the text again with fp32 keys and values in place
of fp16: 'spread' is the mean difference, which shows what rounding alone does.
"""
import json
import pathlib
import sys

import llama_cpp.llama_cpp as low
import numpy as np
from llama_cpp import Llama

DAYS = ("the sea was calm and {0} ships passed the lighthouse", "rain fell for {0} hours, and the keeper mended a net",
        "{0} gulls sat on the rail while he wrote a letter to his sister", "the lamp burned {0} litres of oil",
        "a storm came from the west with waves of {0} metres; nobody slept")
TEXT = "From the diary of a lighthouse keeper.\n" + "".join(
    f"Day {i + 1}: {DAYS[i * i % 5].format(i * 7 % 23 + 2)}.\n" for i in range(36))


def plain_params(default=low.llama_model_default_params):
    """Without repacked weights, as for the other goldens."""
    params = default()
    params.use_extra_bufts = False
    return params


low.llama_model_default_params = plain_params


def load(**options):
    return Llama(sys.argv[1], n_ctx=1024, n_threads=2, n_threads_batch=2, verbose=False, logits_all=True, **options)


def logprobs_of(model, ids):
    model.reset()
    model.eval(ids)
    found = []
    for row, token in zip(model.scores, ids[1:]):
        row = row.astype(np.float64) - row.max()
        found.append(float(row[token] - np.log(np.exp(row).sum())))
    return found


def main():
    model = load()
    ids = model.tokenize(TEXT.encode())
    own, other = logprobs_of(model, ids), logprobs_of(load(type_k=0, type_v=0), ids)
    golden = {"spread": round(float(np.abs(np.subtract(own, other)).mean()), 4), "ids": ids, "next": [round(x, 5) for x in own]}
    (pathlib.Path(__file__).parent / "gemma3.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
