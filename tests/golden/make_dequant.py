#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes dequant.json: what the `gguf` package makes of random blocks of every quantised format. Run by hand:

    make_dequant.py        (needs gguf, numpy)

The blocks come from a generator that the test repeats: a 64-bit congruential one whose upper byte is taken. Bit 14 of
each binary16 scale is cleared, which keeps it finite. Committed are FNV-1a of all values' fp32 bits, so that every bit
counts, and the bits of every 61st value, to see where a difference begins.
"""
import json
import pathlib

import gguf
import numpy

N_BLOCKS = 64
STEP = 61
EXTREMES = [0x0001, 0x83FF, 0x7BFF, 0x8000]  # the smallest, a negative subnormal, the largest, minus zero
# Offsets of the binary16 fields.
TYPES = {
    "F16": [0], "BF16": [0],
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0], "MXFP4": [],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_XS": [0],
}


def random_bytes(seed, n):
    state, out = seed, bytearray()
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(state >> 56)
    return out


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def make_case(seed, name, halves):
    kind = gguf.GGMLQuantizationType[name]
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = random_bytes(seed, N_BLOCKS * block_bytes)
    for block in range(N_BLOCKS):
        for at in halves:
            blocks[block * block_bytes + at + 1] &= 0xBF
    for i, at in enumerate(halves):
        first = (N_BLOCKS - 1) * block_bytes + at
        blocks[first:first + 2] = EXTREMES[(seed + i) % 4].to_bytes(2, "little")
    values = gguf.dequantize(numpy.frombuffer(blocks, numpy.uint8), kind).astype("<f4").ravel()
    assert numpy.isfinite(values).all()
    bits = values.view("<u4")
    return {"type": name, "seed": seed, "blocks": N_BLOCKS, "halves": halves, "hash": f"{fnv1a(values.tobytes()):016x}",
            "step": STEP, "bits": [int(b) for b in bits[::STEP][:16]]}


def main():
    cases = [make_case(seed, name, halves) for seed, (name, halves) in enumerate(TYPES.items(), 1)]
    path = pathlib.Path(__file__).parent / "dequant.json"
    path.write_text("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
