# SPDX-License-Identifier: Apache-2.0
"""What the bars on a GPU share: figures of `longwave bench` on synthetic weights of Llama-3.1-8B's shape.

LONGWAVE_BINARY names the program (build-gpu/server/longwave).
"""
import json
import os
import subprocess
import sys

SHAPE = "llama-3.1-8b"


def figures(weights, *options, prefill="none"):
    binary = os.environ.get("LONGWAVE_BINARY", "build-gpu/server/longwave")
    command = [binary, "bench", "--json", "--device", "cuda", "--synthetic", f"{SHAPE}:{weights}", "--prefill", prefill,
               *options]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def median(row):
    return row["tokens_per_second"]["median"]


def finish(results):
    """results: (what, measured, bar) each; the last line has all of them."""
    held = all(measured >= bar for _, measured, bar in results)
    print("; ".join(f"{what} {measured:.0f} tokens/s (bar {bar})" for what, measured, bar in results),
          "- held" if held else "- missed")
    sys.exit(not held)
