#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: check_wavelength.py LONGWAVE [--write]. Fails when a count in docs/wavelength.md is not what 'longwave inspect
--wavelength' counts; with --write the page's tables are made anew."""
import json
import pathlib
import re
import subprocess
import sys

longwave = sys.argv[1]
page = pathlib.Path(__file__).resolve().parents[2] / "docs/wavelength.md"
COUNTS = [("qwen2.5-0.5b", None, ("8K", "16K", "32K")), ("qwen2.5-0.5b", "yarn=2", ("64K",)),
          ("qwen2.5-0.5b", "yarn=5", ("160K",)), ("llama-3.2-3b", None, ("8K", "16K", "32K", "64K")),
          ("llama-3.1-8b", None, ("8K", "32K", "128K")), ("qwen2.5-7b-1m", None, ("128K", "512K", "1M")),
          ("smollm2-135m", None, ("8K", "32K")), ("gemma3-270m", None, ("8K", "32K"))]
BANDS = ("smollm2-135m", "qwen2.5-0.5b", "llama-3.1-8b", "gemma3-270m")
DIAL = ("1", "2", "4", "8", "16", "64")


def inspect(shape, *args):
    command = [longwave, "inspect", "--shape", shape, "--wavelength", "--json", *args]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["wavelength"]


def percent(count):
    return f"{100 * count['pruned']:.1f}"


def count_rows():
    for shape, rope, contexts in COUNTS:
        for context in contexts:
            found = inspect(shape, "-c", context, *(["--rope", rope] if rope else []))
            closed = found["closed_form"]
            cells = [shape, context, rope or "none", percent(found["exact"]["prefill"]), percent(found["exact"]["last_row"]),
                     *(f"{100 * closed[name]:.1f}" if closed else "–" for name in ("prefill", "last_row")),
                     percent(found["bands"]["prefill"]), percent(found["bands"]["last_row"])]
            yield "| " + " | ".join(cells) + " |"


def band_rows():
    for shape in BANDS:
        table = inspect(shape)["table"]
        yield f"| {shape} | " + ", ".join(f"{band['channels']} from {band['first_distance']}" for band in table) + " |"


def dial_rows():
    for k in DIAL:
        found = [inspect(shape, "-c", context, "--wavelength-k", k)
                 for shape, context in (("smollm2-135m", "8K"), ("llama-3.1-8b", "128K"))]
        yield f"| {k} | " + " | ".join(percent(one[by]["last_row"]) for one in found for by in ("exact", "bands")) + " |"


text = page.read_text()
for name, rows in (("counts", count_rows()), ("bands", band_rows()), ("dial", dial_rows())):
    marks = re.compile(rf"(<!-- {name} -->\n(?:\|.*\n){{2}})(?:\|.*\n)*")
    text, found = marks.subn(lambda match, lines=list(rows): match.group(1) + "\n".join(lines) + "\n", text)
    assert found == 1, name
if "--write" in sys.argv:
    page.write_text(text)
elif text != page.read_text():
    sys.exit(f"check_wavelength: {page} is out of date: {' '.join(sys.argv)} --write")
