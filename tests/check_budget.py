#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when a file, a function or a line is longer than agreed. Functions are found by matching braces."""
import re
import sys

import repo_files

MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_COLUMNS = 600, 60, 120
# "path" or "path:function" -> why it may be longer. Generated tables and the like; never because there was no time.
ALLOWED = {}

NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:\\\n|[^\n])*', re.S | re.M)
NAME = re.compile(r"([A-Za-z_]\w*)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\s*$", re.S)


def blank(match):
    """Comments, strings and directives become blanks, so that every newline stays where it was."""
    return re.sub(r"[^\n]", " ", match.group())


def functions(text):
    """(name, first line, lines) of every function body at the top level."""
    code = NOISE.sub(blank, text)
    depth, head_start, start, name = 0, 0, 0, None
    for brace in re.finditer(r"[{};]", code):
        c, at = brace.group(), brace.start()
        if c == "{":
            if depth == 0:
                head = code[head_start:at]
                if re.fullmatch(r"\s*(extern\s*|namespace\s*\w*\s*)", head):  # a wrapper: look inside
                    head_start = at + 1
                    continue
                found = NAME.search(head.rstrip())
                name = found.group(1) if found and "=" not in head else None
                start = head_start + len(head) - len(head.lstrip())
            depth += 1
        elif c == "}":
            depth = max(0, depth - 1)
            if depth == 0:
                if name:
                    first = code.count("\n", 0, start) + 1
                    yield name, first, code.count("\n", 0, at) + 2 - first
                name, head_start = None, at + 1
        elif depth == 0:
            head_start = at + 1


def offences_of(path, text):
    lines = text.splitlines()
    found = []
    if len(lines) > MAX_FILE_LINES and path not in ALLOWED:
        found.append(f"{path}: {len(lines)} lines, at most {MAX_FILE_LINES}")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS:
            found.append(f"{path}:{number}: {len(line)} columns, at most {MAX_COLUMNS}")
    for name, first, count in functions(text):
        if count > MAX_FUNCTION_LINES and f"{path}:{name}" not in ALLOWED:
            found.append(f"{path}:{first}: {name} has {count} lines, at most {MAX_FUNCTION_LINES}")
    return found


def self_test():
    body = "    x();\n" * (MAX_FUNCTION_LINES - 3)
    fits = 'struct S {\n    int a;\n};\nstatic int t[] = {1, 2};\n/* { */\nint f(int (*g)(int))\n{\n' + body + "}\n"
    too_long = fits.replace("}\n", '    y("}");\n}\n')[::-1].replace("\n}", "\n}\n;)(z    ", 1)[::-1]
    sizes = [(name, count) for name, _, count in functions(fits)]
    return (sizes == [("f", MAX_FUNCTION_LINES)] and not offences_of("a.c", fits) and offences_of("a.c", too_long)
            and offences_of("a.c", "x\n" * (MAX_FILE_LINES + 1)) and offences_of("a.c", "x" * (MAX_COLUMNS + 1))
            and [n for n, _, _ in functions('extern "C" {\nvoid g(void)\n{\n}\n}\n')] == ["g"])


if not self_test():
    sys.exit("check_budget: the self test failed")
sources = repo_files.files(".c", ".h", ".cu", ".cuh")
known = {p.as_posix() for p in sources}
offences = [f"{entry}: allowed, but there is no such file" for entry in ALLOWED if entry.split(":")[0] not in known]
for path in sources:
    offences += offences_of(path.as_posix(), repo_files.text(path))
repo_files.close("check_budget", len(sources), offences)
