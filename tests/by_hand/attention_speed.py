#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast attention policies decode by depth, for docs/attention.md: a table in Markdown, and a plot.
usage: attention_speed.py LONGWAVE MODEL PLOT.svg [BENCH.json...]   the files are outputs of 'bench --json': nothing is measured then"""
import json
import math
import pathlib
import subprocess
import sys

DEPTHS = (2048, 8192, 16384, 32768)
POLICIES = ("dense", "lserve-4k", "lserve-8k", "hip-3k", "hip-5k", "hip-3k-fast", "hip-3k-flash")
COLOURS = ("#333", "#1b5bc4", "#7aa5e8", "#a85400", "#e09a50", "#1a7f45", "#b3261e")
LEFT, RIGHT, TOP, BOTTOM = 60, 520, 20, 300


def measure(binary, model):
    done = subprocess.run([binary, "bench", "-m", model, "--prefill", "none", "--depth", ",".join(map(str, DEPTHS)), "--decode", "32", "-r", "3",
                           "--policies", ",".join(POLICIES), "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["decode"]


def table(rates, depths):
    lines = ["| policy | " + " | ".join(f"{depth:,}" for depth in depths) + " |", "|---|" + "---|" * len(depths)]
    for policy in POLICIES:
        cells = [f"{rates[policy, depth]:.1f} ({rates[policy, depth] / rates['dense', depth]:.2f})" for depth in depths]
        lines.append(f"| `{policy}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(rates, depths):
    """Times dense, in logarithms: the machine may have been faster at one depth than at another."""
    times = {(policy, depth): rate / rates["dense", depth] for (policy, depth), rate in rates.items()}
    low, high = min(0.8, *times.values()), max(times.values())
    x = {depth: LEFT + (RIGHT - LEFT) * math.log2(depth / depths[0]) / math.log2(depths[-1] / depths[0]) for depth in depths}

    def y(ratio):
        return BOTTOM - (BOTTOM - TOP) * math.log(ratio / low) / math.log(high / low)

    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 340" font-family="sans-serif" font-size="11">',
           '<rect width="640" height="340" fill="white"/>']
    for depth in depths:
        out.append(f'<path d="M{x[depth]:.0f} {TOP}V{BOTTOM}" stroke="#ddd"/><text x="{x[depth]:.0f}" y="{BOTTOM + 16}" text-anchor="middle">{depth:,}</text>')
    for ratio in (0.5, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20):
        if low <= ratio <= high:
            out.append(f'<path d="M{LEFT} {y(ratio):.0f}H{RIGHT}" stroke="#ddd"/><text x="{LEFT - 6}" y="{y(ratio) + 4:.0f}" text-anchor="end">{ratio}</text>')
    ends = sorted((y(times[policy, depths[-1]]), policy) for policy in POLICIES)
    at = TOP
    for end, policy in ends:
        colour = COLOURS[POLICIES.index(policy)]
        points = " ".join(f"{x[depth]:.1f},{y(times[policy, depth]):.1f}" for depth in depths)
        at = max(at + 13, end + 4)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/><text x="{RIGHT + 8}" y="{at:.0f}" fill="{colour}">{policy}</text>')
    middle = (LEFT + RIGHT) // 2
    out.append(f'<text x="{middle}" y="{BOTTOM + 34}" text-anchor="middle">tokens of context</text>'
               '<text x="14" y="160" transform="rotate(-90 14 160)" text-anchor="middle">times the speed of dense</text></svg>')
    return "\n".join(out) + "\n"


def main():
    binary, model, svg, *files = sys.argv[1:]
    rows = [row for file in files for row in json.loads(pathlib.Path(file).read_text(encoding="utf-8"))["decode"]] or measure(binary, model)
    rates = {(row["policy"], row["depth"]): row["tokens_per_second"]["median"] for row in rows}
    depths = sorted({depth for _, depth in rates})
    print(table(rates, depths))
    pathlib.Path(svg).write_text(plot(rates, depths), encoding="utf-8")


main()
