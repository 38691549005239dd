# SPDX-License-Identifier: Apache-2.0
"""usage: peer_copy.py MODEL PATH fp32|SEED
Writes the model's weights as fp32, or a copy of its file whose norm weights are moved by a millionth at random; prints null.
For a Python that has gguf, numpy and llama-cpp-python."""
import pathlib
import shutil
import sys

import gguf
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from make_smollm2_greedy import write_exact


def write_moved(model, path, seed):
    rng = np.random.default_rng(seed)
    shutil.copy(model, path)
    data = np.memmap(path, mode="r+", dtype=np.uint8)
    for tensor in gguf.GGUFReader(model).tensors:
        if tensor.name.endswith("norm.weight"):
            weights = tensor.data.ravel() * (1 + 1e-6 * rng.standard_normal(tensor.data.size))
            data[tensor.data_offset:][:tensor.n_bytes] = weights.astype(np.float32).view(np.uint8)
    data.flush()


model, path, what = sys.argv[1:]
if what == "fp32":
    write_exact(model, path)
else:
    write_moved(model, path, int(what))
print("null")
