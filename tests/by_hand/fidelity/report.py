#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns what run.py left into the tables and the picture of docs/fidelity.md, and merges files for `longwave eval`.

usage: report.py STATE docs/fidelity.md docs/fidelity.svg   replaces the tables between the page's marks that STATE measured
       report.py STATE --merge MODEL MODE FIRST OUT.json    one --resume file of prompts from FIRST on, as of one process
       report.py STATE --keep OUT.json [NAME]     all finished jobs (whose names hold NAME) in one file: answers, rows, rankings
       report.py STATE --take KEPT.json           puts them back, so that run.py goes on from there
"""
import json
import math
import re
import sys
from collections import defaultdict
from pathlib import Path

import jobs

Z = 1.959964


def load(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def plain(policy):
    return re.sub(r"#[0-9a-f]{16}", "", policy)


def wilson(right, n):
    middle, half = (right + Z * Z / 2) / (n + Z * Z), Z / (n + Z * Z) * math.sqrt(right * (n - right) / n + Z * Z / 4)
    return 100 * (middle - half), 100 * (middle + half)


def paired(only_dense, only_own, n):
    """Agresti and Min: the change of the share with its interval, in points."""
    b, c, m = only_dense + 0.5, only_own + 0.5, n + 2
    middle, half = (c - b) / m, Z * math.sqrt((b + c) - (c - b) ** 2 / m) / m
    return 100 * (only_own - only_dense) / n, 100 * (middle - half), 100 * (middle + half)


class Cells:
    """Answers by (policy, task, length), each prompt once."""

    def __init__(self, state, pattern, haystacks=range(10**6)):
        self.found = defaultdict(dict)
        for path in sorted(state.glob("*.json")):
            if not re.fullmatch(pattern, path.stem):
                continue
            for answer in load(path).get("answers", []):
                if answer["haystack"] in haystacks:
                    key = plain(answer["policy"]), answer["task"], answer["length"]
                    self.found[key][answer["haystack"]] = answer

    def policies(self, tasks, length):
        return [p for p in dict.fromkeys(key[0] for key in self.found)
                if any((p, task, length) in self.found for task in tasks)]

    def task(self, policy, task, length, dense="dense"):
        own, base = self.found.get((policy, task, length), {}), self.found.get((dense, task, length), {})
        both = sorted(own.keys() & base.keys())
        a, b = ("".join(side[h]["right"] for h in both) for side in (own, base))
        if not a:
            return None
        lost, won = (sum(x + y == pair for x, y in zip(b, a)) for pair in ("10", "01"))
        return {"n": len(a), "right": a.count("1"), "dense": b.count("1"), "lost": lost, "won": won,
                "read": sum(own[h]["kv_bytes"] + own[h]["select_bytes"] for h in both),
                "whole": sum(own[h]["dense_bytes"] for h in both)}


def short(task):
    return task.split(":")[0]


def share_of(found):
    whole = sum(f["whole"] for f in found)
    return f"{100 * sum(f['read'] for f in found) / whole:.1f} %" if whole else "-"


def policy_rows(cells, tasks, length, dense="dense", order=None):
    for policy in order or cells.policies(tasks, length):
        found = [cells.task(policy, task, length, dense) for task in tasks]
        if all(found):
            changes = [100 * (f["right"] - f["dense"]) / f["n"] for f in found]
            yield policy, found, sum(changes) / len(changes), min(changes)


def grid(cells, tasks, length, dense="dense"):
    """Best first; the reader sees what it costs."""
    rows = sorted(policy_rows(cells, tasks, length, dense), key=lambda row: -row[2])
    lines = ["| policy | bytes | " + " | ".join(f"{short(t)}" for t in tasks) + " | mean | worst | questions |",
             "|---|---|" + "---|" * (len(tasks) + 3)]
    for policy, found, mean, worst in rows:
        shares = " | ".join(f"{100 * f['right'] / f['n']:.0f} % ({100 * (f['right'] - f['dense']) / f['n']:+.0f})"
                            for f in found)
        questions = "-".join(str(n) for n in dict.fromkeys((min(f["n"] for f in found), max(f["n"] for f in found))))
        lines.append(f"| `{policy}` | {share_of(found)} | {shares} | {mean:+.1f} | {worst:+.1f} | {questions} |")
    return [*lines, ""]


def default_table(cells, tasks, policy):
    lines = ["| task | questions | dense right | default right | change in points, 95 % | bytes |", "|---|---|---|---|---|---|"]
    total, changes = [], []
    for task in tasks:
        f = cells.task(policy, task, jobs.LENGTH)
        if not f:
            continue
        change, low, high = paired(f["lost"], f["won"], f["n"])
        if f["whole"]:  # rows were decoded
            changes.append(change)
            total.append(f)
        low_dense, high_dense = wilson(f["dense"], f["n"])
        lines.append(f"| `{task}` | {f['n']} | {100 * f['dense'] / f['n']:.1f} % [{low_dense:.1f}, {high_dense:.1f}] | "
                     f"{100 * f['right'] / f['n']:.1f} % | {change:+.2f} [{low:+.2f}, {high:+.2f}] | {share_of([f])} |")
    if changes:
        lines.append(f"| mean, worst | | | | {sum(changes) / len(changes):+.2f}, {min(changes):+.2f} | {share_of(total)} |")
    return [*lines, ""]


def rows_table(state, names):
    by, estimates = defaultdict(list), []
    for name in names:
        data = load(state / f"{name}.json")
        for row in data.get("rows", []):
            by[plain(row["policy"]), row["kind"]].append(row)
        estimates += [pair for e in data.get("estimates", []) for pair in zip(e["estimated"], e["missing"])]
    lines = ["| policy | rows | KL from dense, nats | same top token | bytes |", "|---|---|---|---|---|"]
    for (policy, kind), rows in by.items():
        kl, same = [x for r in rows for x in r["kl"]], "".join(r["same_top"] for r in rows)
        share = sum(r["kv_bytes"] + r["select_bytes"] for r in rows) / sum(r["dense_bytes"] for r in rows)
        lines.append(f"| `{policy}` | {len(kl)} {kind} | {sum(kl) / len(kl):.4f} | "
                     f"{100 * same.count('1') / len(same):.1f} % | {100 * share:.0f} % |")
    within = sum(y / 2 <= x <= 2 * y for x, y in estimates)
    tail = [f"Estimates of the missing mass within a factor of 2 of the true one: {within} of {len(estimates)} rows.", ""]
    return [*lines, "", *(tail if estimates else [])]


def recall_table(state, names):
    by = defaultdict(list)
    for name in names:
        for cell in load(state / f"{name}.json").get("recall", []):
            by[plain(cell["policy"])].append(cell)
    lines = ["| policy | true top-k found | mass seen | with the true top-k | ranges alone |", "|---|---|---|---|---|"]
    for policy, cells in by.items():
        n = sum(c["n"] for c in cells)
        mean = [sum(c[m] * c["n"] for c in cells) / n for m in ("recall", "mass", "best_mass", "range_mass")]
        lines.append(f"| `{policy}` | " + " | ".join(f"{x:.3f}" for x in mean) + " |")
    return [*lines, ""]


def beyond_table(state):
    lines = ["| length | task | policy | right | of | bytes |", "|---|---|---|---|---|---|"]
    cells = Cells(state, r"smollm2-beyond-.*")
    for (policy, task, length), answers in sorted(cells.found.items(), key=lambda item: (item[0][2], item[0][1])):
        right = "".join(a["right"] for a in answers.values())
        whole = sum(a["dense_bytes"] for a in answers.values())
        read = sum(a["kv_bytes"] + a["select_bytes"] for a in answers.values())
        lines.append(f"| {length} | {short(task)} | `{policy}` | {right.count('1')} | {len(right)} | "
                     f"{100 * read / whole:.0f} % |")
    return [*lines, ""]


def plot(cells, tasks):
    """Share of the bytes and mean change: what a byte less costs."""
    points = []
    for policy, found, mean, _ in policy_rows(cells, tasks, jobs.LENGTH):
        whole = sum(f["whole"] for f in found)
        if whole and policy != "random":
            points.append((sum(f["read"] for f in found) / whole, mean, policy))
    if not points:
        return ""
    low, width, height = min(-10, min(m for _, m, _ in points)), 900, 440
    high = max(5, max(m for _, m, _ in points))

    def at(share, mean):
        return 60 + 800 * share, 20 + (height - 70) * (high - mean) / (high - low)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="10">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        x, _ = at(share, 0)
        out.append(f'<path d="M{x:.0f} 20V{height - 50}" stroke="#ddd"/><text x="{x:.0f}" y="{height - 34}" '
                   f'text-anchor="middle">{100 * share:.0f} %</text>')
    for mean in range(10 * math.ceil(low / 10), int(high) + 1, 10):
        _, y = at(0, mean)
        out.append(f'<path d="M60 {y:.0f}H860" stroke="{"#888" if mean == 0 else "#ddd"}"/>'
                   f'<text x="54" y="{y + 3:.0f}" text-anchor="end">{mean:+d}</text>')
    for share, mean, policy in points:
        x, y = at(share, mean)
        color = "#c00" if "roles=" in policy else "#06c" if "k=" in policy else "#080"
        out.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3" fill="{color}"/><text x="{x + 5:.0f}" y="{y + 3:.0f}" '
                   f'fill="#444" font-size="8">{policy}</text>')
    out.append(f'<text x="460" y="{height - 12}" text-anchor="middle">bytes of keys and values read, of dense</text>'
               '<text x="12" y="200" transform="rotate(-90 12 200)" text-anchor="middle">mean change, points</text></svg>')
    return "\n".join(out) + "\n"


def measured(cells, tasks):
    """Those that something but dense was asked."""
    return [task for task in tasks if any(p != "dense" and t == task for p, t, _ in cells.found)]


def tries_table(state):
    lines = ["| task | dense right | of |", "|---|---|---|"]
    for path in sorted(state.glob("gemma-try-*.json")):
        for answer in load(path).get("answers", []):
            lines.append(f"| `{answer['task']}` | {answer['right'].count('1')} | {len(answer['right'])} |")
    return [*lines, ""]


def gpu_tables(state):
    explored = Cells(state, r"smollm2-gpu-prefill-.*", jobs.EXPLORED)
    certified = Cells(state, r"smollm2-gpu-prefill-.*", jobs.CERTIFIED)
    decoded = Cells(state, r"smollm2-gpu-decode-.*", jobs.EXPLORED)
    tasks, asked = jobs.TASKS["smollm2"], [*jobs.TASKS["smollm2"][:2], jobs.WORDS]
    gemma = {mode: Cells(state, rf"gemma-gpu-{mode}-.*", jobs.EXPLORED) for mode in ("prefill", "decode")}
    return {"gpu": grid(explored, tasks, jobs.LENGTH), "gpu-decode": grid(decoded, asked, jobs.LENGTH),
            "gpu-default": default_table(certified, tasks, jobs.GPU_CERTIFIED[0]),
            "gpu-windowed": default_table(certified, tasks, jobs.GPU_WINDOWED[0]),
            "gpu-streaming": default_table(certified, tasks, jobs.GPU_CERTIFIED[2]),
            "gpu-gemma": grid(gemma["prefill"], jobs.TASKS["gemma"], jobs.LENGTH),
            "gpu-gemma-decode": grid(gemma["decode"], jobs.TASKS["gemma"], jobs.LENGTH),
            "gpu-rows": rows_table(state, ["smollm2-gpu-rows", "smollm2-gpu-rows-wave"]),
            "gpu-gemma-rows": rows_table(state, ["gemma-gpu-rows", "gemma-gpu-rows-wave"]),
            "gpu-recall": recall_table(state, ["smollm2-gpu-rows", "gemma-gpu-rows"])}


def page(state, path, svg):
    tasks = jobs.TASKS["smollm2"]
    explored = Cells(state, r"smollm2-prefill-\d+-\d+-.*", jobs.EXPLORED)
    certified = Cells(state, r"smollm2-prefill-\d+-\d+-(dense|default)", jobs.CERTIFIED)
    decoded = Cells(state, r"smollm2-decode-\d+-\d+-.*", jobs.EXPLORED)
    gemma = Cells(state, r"gemma-prefill-\d+-\d+-.*", jobs.EXPLORED)
    tables = {"default": default_table(certified, tasks, jobs.DEFAULT), "smollm2": grid(explored, tasks, jobs.LENGTH),
              "decode": grid(decoded, measured(decoded, [*tasks, jobs.WORDS]), jobs.LENGTH),
              "gemma-tries": tries_table(state), "gemma": grid(gemma, jobs.TASKS["gemma"], jobs.LENGTH),
              "rows": rows_table(state, ["smollm2-rows-wave", "smollm2-rows-lists", "smollm2-rows-default"]),
              "gemma-rows": rows_table(state, ["gemma-rows-wave"]),
              "recall": recall_table(state, ["smollm2-rows-lists", "smollm2-rows-default"]), "beyond": beyond_table(state),
              **gpu_tables(state)}
    text = path.read_text()
    for name, lines in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end {name} -->"
        if begin in text and len(lines) > 3:  # something was measured
            head, rest = text.split(begin, 1)
            text = head + begin + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1]
    path.write_text(text)
    picture = plot(explored, tasks)
    if picture:
        svg.write_text(picture)


def merge(state, model, mode, first, out):
    whole = None
    for path in sorted(state.glob(f"{model}-{mode}-*.json")):
        data = load(path)
        if not data.get("answers") or not re.fullmatch(rf"{model}-{mode}-\d+-\d+-(dense|default)", path.stem):
            continue
        whole = whole or {**data, "answers": [], "rows": [], "recall": [], "estimates": []}
        if data["identity"] != whole["identity"]:
            sys.exit(f"{path}: of another kind: {data['identity']}")
        known = {(a["policy"], a["task"], a["length"], a["haystack"]) for a in whole["answers"]}
        whole["answers"] += [a for a in data["answers"] if a["haystack"] >= first and
                             (a["policy"], a["task"], a["length"], a["haystack"]) not in known]
    Path(out).write_text(json.dumps(whole) + "\n")


def keep(state, out, name=""):
    kept = {path.stem: load(path.with_suffix(".json")) for path in sorted(state.glob("*.done")) if name in path.stem}
    lines = [f"{json.dumps(job)}: {json.dumps(data, separators=(',', ':'))}" for job, data in kept.items()]
    Path(out).write_text("{" + ",\n".join(lines) + "}\n")


def take(state, kept):
    state.mkdir(parents=True, exist_ok=True)
    for job, data in json.loads(Path(kept).read_text()).items():
        (state / f"{job}.json").write_text(json.dumps(data))
        (state / f"{job}.done").write_text("kept\n")


def main():
    state = Path(sys.argv[1])
    if sys.argv[2] == "--keep":
        keep(state, *sys.argv[3:])
    elif sys.argv[2] == "--take":
        take(state, sys.argv[3])
    elif sys.argv[2] == "--merge":
        merge(state, sys.argv[3], sys.argv[4], int(sys.argv[5]), sys.argv[6])
    else:
        page(state, Path(sys.argv[2]), Path(sys.argv[3]))


if __name__ == "__main__":
    main()
