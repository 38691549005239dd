# SPDX-License-Identifier: Apache-2.0
"""usage: peer_server.py MODEL PORT   llama-cpp-python's server, for a Python that has llama-cpp-python[server], to score echoed
prompts of at most 256 tokens. Three things are put right in it (0.3.36): its AMX buffers crash on some processors and stay off;
the echoed log-probabilities of models that put no BOS in front are those of the row behind (row i is told of token i, where row
i - 1 predicts it); and of a row's tokens it sorts all where the likeliest are wanted, which takes most of its time."""
import heapq
import sys

import llama_cpp.llama
import llama_cpp.llama_cpp as llama
import numpy as np

defaults = llama.llama_model_default_params


def without_extra_buffers():
    params = defaults()
    params.use_extra_bufts = False
    return params


def logprobs_of_the_row_before(logits, axis=-1):
    found = to_logprobs(logits, axis)
    return np.concatenate([np.zeros_like(found[:1]), found])


llama.llama_model_default_params = without_extra_buffers
to_logprobs = llama_cpp.llama.Llama.logits_to_logprobs
llama_cpp.llama.Llama.logits_to_logprobs = staticmethod(logprobs_of_the_row_before)
llama_cpp.llama.sorted = lambda items, reverse=False: heapq.nlargest(20, items)
from llama_cpp.server.__main__ import main  # noqa: E402

sys.argv = ["server", "--model", sys.argv[1], "--port", sys.argv[2], "--host", "127.0.0.1", "--n_ctx", "256", "--logits_all", "true",
            "--n_threads", "2", "--n_threads_batch", "2", "--verbose", "false", "--model_alias", "smollm2"]
main()
