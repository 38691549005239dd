#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records how the `gguf` package (0.17 or newer, with numpy) dequantises blocks: tests/golden/dequant.json.

usage: make_dequant.py > dequant.json
Blocks are random bytes with finite scales; the last block of each type has the extreme ones.
"""
import json

import numpy as np
from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES
from gguf.quants import dequantize

# byte offsets of the binary16 scales in a block
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q8_0: [0], T.Q6_K: [208]}
EXTREMES = [0x0001, 0x83FF, 0x7BFF, 0x8000]  # smallest, a negative subnormal, the largest, minus zero


def blocks_of(kind, rng):
    elements, size = GGML_QUANT_SIZES[kind]
    count = 3 if elements == 32 else 2
    if kind == T.F16:
        return np.array([0, 1, 0x3FF, 0x400, 0x3C00, 0xBC01, 0x7BFF, 0x7C00, 0xFC00, 0x8000], "<u2").view(np.uint8)
    if kind == T.BF16:
        return np.array([0, 1, 0x3F80, 0xBF81, 0x7F7F, 0x7F80, 0xFF80, 0x8000], "<u2").view(np.uint8)
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for b in range(count):
        for i, at in enumerate(SCALES[kind]):
            bits = EXTREMES[(int(kind) + i) % 4] if b == count - 1 else int(np.float16(rng.normal() / 50).view("u2"))
            blocks[b, at:at + 2] = [bits & 255, bits >> 8]
    return blocks.reshape(-1)


def main():
    rng = np.random.default_rng(2)
    out = []
    for kind in (T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q8_0, T.Q6_K):
        blocks = blocks_of(kind, rng)
        values = dequantize(blocks, kind).astype(np.float32)
        out.append({"type": int(kind), "bytes": blocks.tobytes().hex(),
                    "values": [f"{v:08x}" for v in values.view(np.uint32).tolist()]})
    print("[" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in out) + "]")


if __name__ == "__main__":
    main()
