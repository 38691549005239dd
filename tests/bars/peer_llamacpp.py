# SPDX-License-Identifier: Apache-2.0
"""usage: peer_llamacpp.py MODEL THREADS PROMPT_TOKENS DECODE_TOKENS REPETITIONS EXTRA_BUFFERS(0 or 1)
Times llama.cpp as longwave bench times longwave; for a Python that has llama-cpp-python. Tokens a second as JSON."""
import ctypes
import json
import statistics
import sys
import time

import llama_cpp.llama_cpp as llama

WARM_UP_TOKENS = 2

path = sys.argv[1]
threads, n_prompt, n_decode, repetitions, extra_buffers = map(int, sys.argv[2:])


@llama.llama_log_callback
def silent(_level, _text, _data):
    pass


llama.llama_log_set(silent, ctypes.c_void_p(0))
llama.llama_backend_init()
model_params = llama.llama_model_default_params()
model_params.n_gpu_layers = 0
model_params.use_extra_bufts = bool(extra_buffers)
model = llama.llama_model_load_from_file(path.encode(), model_params)
if not model:
    sys.exit(f"llama.cpp cannot load {path}")
params = llama.llama_context_default_params()
params.n_ctx = max(n_prompt, n_decode)
params.n_batch = params.n_ubatch = n_prompt
params.n_threads = params.n_threads_batch = threads
context = llama.llama_init_from_model(model, params)
if not context:
    sys.exit("llama.cpp makes no context")
n_vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
memory = llama.llama_get_memory(context)
batch = llama.llama_batch_init(n_prompt, 0, 1)


def step(first, n):
    """Positions [first, first + n), logits of the last."""
    batch.n_tokens = n
    for i in range(n):
        batch.token[i] = (first + i) * 2654435761 % n_vocab
        batch.pos[i] = first + i
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = 0
        batch.logits[i] = i == n - 1
    began = time.perf_counter()
    if llama.llama_decode(context, batch) != 0 or not llama.llama_get_logits_ith(context, -1):
        sys.exit("llama_decode failed")
    return time.perf_counter() - began


def rate(n, sizes):
    """The median over the repetitions, after a warm-up."""
    rates = []
    for _ in range(repetitions):
        llama.llama_memory_clear(memory, False)
        rates.append(n / sum(step(first, size) for first, size in sizes))
    return statistics.median(rates)


step(0, n_prompt)
prefill = rate(n_prompt, [(0, n_prompt)])
llama.llama_memory_clear(memory, False)
for position in range(WARM_UP_TOKENS):
    step(position, 1)
decode = rate(n_decode, [(position, 1) for position in range(n_decode)])
print(json.dumps({"prefill": prefill, "decode": decode}))
