#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dense attention on the GPU beside cuDNN and FlashAttention-2 (through PyTorch) in one run, Llama-3.1-8B's shape.

usage: attention.py GPU_ATTENTION_BENCH [--json FILE] [WORD ...]

Bars: decode of one sequence at 128K at least 0.85 of the speed at which memory is read in the same run; at 1M at least
0.97 of cuDNN's speed; prefill of 32K and of 128K at least 0.85 of cuDNN's. Every call is replayed in a CUDA graph, those
of decode over enough inputs that the L2 cache serves nothing. Words select the cases whose names hold one of them.
"""
import argparse
import json
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADS, KV_HEADS, DIM = 32, 8, 128
BACKENDS = {'cudnn': SDPBackend.CUDNN_ATTENTION, 'fa2': SDPBackend.FLASH_ATTENTION}
DECODE = [(1, 32768), (1, 131072), (1, 1048576), (64, 1024), (64, 8192), (8, 131072)]
PREFILL = [8192, 32768, 131072]
CUDNN_BARS = [('decode, 1M', 'decode 1x1 of 1048576 bf16', 0.97),
              ('prefill, 32K', 'prefill 1x32768 of 32768 bf16', 0.85),
              ('prefill, 128K', 'prefill 1x131072 of 131072 bf16', 0.85)]


def median_usec(run, n):
    times = []
    for i in range(n + 2):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000)
    return sorted(times[2:])[n // 2]


def graph_usec(calls, n):
    """Of one of the calls, replayed one after another in a graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return median_usec(graph.replay, n) / len(calls)


def read_bytes_per_usec():
    x = torch.randint(-2**62, 2**62, (1 << 29,), dtype=torch.int64, device='cuda')
    return x.numel() * 8 / median_usec(x.sum, 11)


def tensors(*shape):
    return torch.randn(*shape, device='cuda', dtype=torch.bfloat16)


def decode(n_seqs, context):
    layer_bytes = 4 * n_seqs * KV_HEADS * DIM * context
    layers = [(tensors(n_seqs, KV_HEADS, context, DIM), tensors(n_seqs, KV_HEADS, context, DIM))
              for _ in range(max(2, (1 << 30) // layer_bytes + 1))]
    q = tensors(n_seqs, HEADS, 1, DIM)
    return [lambda k=k, v=v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True) for k, v in (layers * 8)[:8]]


def prefill(context):
    q, k, v = tensors(1, HEADS, context, DIM), tensors(1, KV_HEADS, context, DIM), tensors(1, KV_HEADS, context, DIM)
    return [lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)]


def peers(calls, n):
    found = {}
    for name, backend in BACKENDS.items():
        try:
            with sdpa_kernel(backend):
                found[name] = graph_usec(calls, n)
        except RuntimeError as e:
            print(f'{name}: {str(e)[:150]}', file=sys.stderr)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('bench')
    parser.add_argument('--json')
    parser.add_argument('words', nargs='*')
    args = parser.parse_args()
    ours = {}
    for line in subprocess.run([args.bench, *args.words], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
        row = json.loads(line)
        ours[row.pop('name')] = row
    read = read_bytes_per_usec()
    print(f'read ceiling {read / 1e6:.2f} TB/s')
    cases = [(f'decode {n_seqs}x1 of {context} bf16', decode, (n_seqs, context), 11) for n_seqs, context in DECODE]
    cases += [(f'prefill 1x{context} of {context} bf16', prefill, (context,), 5) for context in PREFILL]
    for name, calls, shape, n in cases:
        if name in ours:
            ours[name].update(peers(calls(*shape), n))
            torch.cuda.empty_cache()
    for name, row in ours.items():
        row['of_read'] = row['bytes'] / row['usec'] / read
        row['tflops'] = row['flops'] / row['usec'] / 1e6
        beside = ', '.join(f'{peer} {row[peer]:.1f} us ({row[peer] / row["usec"]:.2f}x)'
                           for peer in BACKENDS if peer in row)
        print(f'{name:45} {row["usec"]:10.1f} us  {row["of_read"]:5.2f} of read  {row["tflops"]:6.1f} TFLOP/s', beside)
    bars = []
    if 'decode 1x1 of 131072 bf16' in ours:
        bars.append(('decode, 128K: of the read ceiling', ours['decode 1x1 of 131072 bf16']['of_read'], 0.85))
    for what, name, bar in CUDNN_BARS:
        if name in ours:
            bars.append((f'{what}: of cuDNN', ours[name]['cudnn'] / ours[name]['usec'], bar))
    for name, value, bar in bars:
        print(f'{"met" if value >= bar else "MISSED"}: {name} {value:.3f}, bar {bar}')
    if args.json:
        with open(args.json, 'w') as f:
            json.dump({'device': torch.cuda.get_device_name(), 'read_bytes_per_usec': read, 'cases': ours}, f, indent=1)
    return any(value < bar for _, value, bar in bars)


if __name__ == '__main__':
    sys.exit(main())
