#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on a source without its licence line, on paths of somebody's machine, and on leftovers of an unfinished edit."""
import re
import sys

import repo_files

LICENCE = "SPDX-License-Identifier: Apache-2.0"
LICENSED = (".c", ".h", ".cu", ".cuh", ".py", ".sh", ".css", ".js", ".html")
# Written in pieces, so that this file does not trip over itself.
LEFTOVERS = (
    (re.compile(r"/(?:root|work|home|Users)" + r"/[A-Za-z0-9_.]"), "a path of one machine"),
    (re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b"), "an open end"),
    (re.compile(r"^(?:<{7}|={7}|>{7})(?: |$)", re.M), "a merge conflict"),
    (re.compile(r"[ \t]+$", re.M), "a blank at the end of a line"),
    (re.compile("\r"), "a carriage return"),
)
MAX_BYTES = 1 << 20


def offences_of(path, text):
    found = []
    is_script = text.startswith("#!")
    if path.endswith(LICENSED) or is_script:
        head = text.splitlines()[:2]
        if not any(LICENCE in line for line in (head if is_script else head[:1])):
            found.append(f"{path}: the licence line is missing")
    for pattern, what in LEFTOVERS:
        for match in pattern.finditer(text):
            found.append(f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {what}")
    if text and not text.endswith("\n"):
        found.append(f"{path}: no newline at the end")
    return found


def self_test():
    good = f"/* {LICENCE} */\nint x;\n"
    bad = ("int x;\n", good + "/* TO" + "DO */\n", good + "// /ro" + "ot/x\n", good + "x \n", good + "<" * 7 + " a\n", good + "x")
    return not offences_of("a.c", good) and all(offences_of("a.c", text) for text in bad)


if not self_test():
    sys.exit("check_texts: the self test failed")
offences = []
checked = 0
for path in repo_files.files():
    if (repo_files.ROOT / path).stat().st_size > MAX_BYTES:
        offences.append(f"{path}: more than {MAX_BYTES} bytes")
        continue
    try:
        text = repo_files.text(path)
    except UnicodeDecodeError:
        continue  # binary test data
    checked += 1
    if "golden" not in path.parts or path.suffix in LICENSED:
        offences += offences_of(path.as_posix(), text)
repo_files.close("check_texts", checked, offences)
