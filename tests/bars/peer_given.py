# SPDX-License-Identifier: Apache-2.0
"""usage: peer_given.py MODEL <JSON   [prompts, texts], both lists of token ids
llama.cpp's log-probabilities of the texts' tokens behind their prompts, all texts in one list, as JSON."""
import json
import sys

from peer_greedy import load, log_softmax


def logprobs(model, prompt, ids):
    model.reset()
    model.eval(prompt + ids[:-1])
    return [float(log_softmax(row)[i]) for row, i in zip(model.scores[len(prompt) - 1:model.n_tokens], ids, strict=True)]


model = load(sys.argv[1])
json.dump([value for pair in zip(*json.load(sys.stdin)) for value in logprobs(model, *pair)], sys.stdout)
