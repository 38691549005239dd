# SPDX-License-Identifier: Apache-2.0
"""usage: peer_copies.py MODEL FOLDER N
Writes into FOLDER the model's weights as fp32, and N copies of its file whose norm weights are moved by a millionth at
random; prints their names as JSON. For a Python that has gguf, numpy and llama-cpp-python."""
import json
import pathlib
import shutil
import sys

import gguf
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from make_smollm2_greedy import write_exact


def write_moved(reader, path, seed):
    rng = np.random.default_rng(seed)
    shutil.copy(sys.argv[1], path)
    data = np.memmap(path, mode="r+", dtype=np.uint8)
    for tensor in reader.tensors:
        if tensor.name.endswith("norm.weight"):
            weights = tensor.data.ravel() * (1 + 1e-6 * rng.standard_normal(tensor.data.size))
            data[tensor.data_offset:][:tensor.n_bytes] = weights.astype(np.float32).view(np.uint8)
    data.flush()


folder, names = pathlib.Path(sys.argv[2]), ["fp32.gguf"]
write_exact(sys.argv[1], folder / names[0])
for seed in range(int(sys.argv[3])):
    names.append(f"moved-{seed}.gguf")
    write_moved(gguf.GGUFReader(sys.argv[1]), folder / names[-1], seed)
json.dump(names, sys.stdout)
