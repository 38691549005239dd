# SPDX-License-Identifier: Apache-2.0
"""What the comparisons of texts with llama.cpp share: the prompts, both programs' log-probabilities of given text, and what
counts as equal. The prompts were written down before anything was measured with them and are not to be chosen by their
outcome."""
import json
import os
import pathlib
import subprocess
import sys

from bar_server import post, server

N_TOKENS, TIE = 64, 0.05
PEER = os.environ.get("LONGWAVE_PEER_PYTHON")
QUESTIONS = (
    "What is the capital of France?", "Why is the sky blue?", "How do I boil an egg?", "What is gravity?",
    "Write a short poem about the sea.", "Explain photosynthesis in two sentences.", "Who was Albert Einstein?",
    "What is the largest ocean on Earth?", "Give me three tips for sleeping better.", "What is a prime number?",
    "Tell me a joke.", "Translate 'good morning' to Spanish.", "What does a doctor do?", "How many days are in a year?",
    "Write a function in Python that adds two numbers.", "What is the difference between a cat and a dog?",
    "Name five fruits.", "Summarise the story of Cinderella.", "What is machine learning?", "How does a bicycle work?",
)


def need_peer():
    if not PEER:
        print("not measured: LONGWAVE_PEER_PYTHON names no Python with llama-cpp-python")
        sys.exit(1)


def run_peer(script, *arguments, given=None):
    path = pathlib.Path(__file__).with_name(script)
    answer = subprocess.run([PEER, path, *map(str, arguments)], input=json.dumps(given), stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, check=True)
    return json.loads(answer.stdout)


def prompt_ids(model, chat):
    """As messages of a user, or as plain text behind what the model begins with."""
    with server("--ctx", "512", model=model) as (_, port, _):
        if not chat:
            return [post(port, "/tokenize", {"content": text, "add_special": True})["tokens"] for text in QUESTIONS]
        texts = [post(port, "/apply-template", {"messages": [{"role": "user", "content": question}]})["prompt"]
                 for question in QUESTIONS]
        return [post(port, "/tokenize", {"content": text})["tokens"] for text in texts]


def given_text(port, prompt, ids):
    """Of each of ids behind the prompt: its log-probability, and the best token's."""
    choice = post(port, "/v1/completions", {"prompt": prompt + ids, "max_tokens": 0, "echo": True, "logprobs": 1,
                                            "temperature": 0})["choices"][0]["logprobs"]
    return choice["token_logprobs"][len(prompt):], [max(top.values()) for top in choice["top_logprobs"][len(prompt):]]


def first_turn(reference, ours, best):
    """Where ours prefers another token before the reference has a tie, and where that is; None if nowhere."""
    tie = next((i for i, token in enumerate(reference) if token["margin"] < TIE), len(reference))
    return next((i for i in range(tie) if ours[i] < best[i]), None), tie
