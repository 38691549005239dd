#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when an #include points the wrong way (the table of folders in ARCHITECTURE.md)."""
import re
import sys

import repo_files

EVERYTHING = ("base/", "config/", "kernels/", "engine/", "scheduler/", "server/")
# (files that begin with, what they may include); the first match counts.
MAY_INCLUDE = (
    ("base/", ("base/",)),
    ("config/", ("config/", "base/")),
    ("kernels/", ("kernels/", "base/")),
    ("engine/", ("engine/", "kernels/", "config/", "base/")),
    ("scheduler/", ("scheduler/", "engine/", "config/", "base/")),
    ("server/main.c", EVERYTHING),
    ("server/cmd/", EVERYTHING),
    ("server/", ("server/", "scheduler/messages.h", "scheduler/worker.h", "engine/text/", "engine/sample/grammar/",
                 "engine/sample/schema/", "engine/sample/calls/", "config/", "base/")),
    ("tests/", EVERYTHING + ("tests/",)),
)
# Libraries that belong to some folders alone.
LIBRARIES = (
    ("criterion/", ("tests/",)),
    ("uv.h", ("server/", "tests/")),
    ("microhttpd.h", ("server/", "tests/")),
    ("ini.h", ("config/",)),
    ("pcre2.h", ("engine/text/", "engine/sample/", "tests/support/alloc_count.c")),
    ("utf8proc.h", ("engine/text/", "engine/sample/")),
    ("cjson/", ("engine/", "server/", "tests/")),
    ("cuda", ("kernels/", "engine/device", "tests/gpu/")),
    ("cublas", ("kernels/", "engine/device", "tests/gpu/")),
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(["<])([^">]+)[">]', re.M)


def first_match(rows, key):
    return next((value for prefix, value in rows if key.startswith(prefix)), None)


def offences_of(path, text):
    allowed = first_match(MAY_INCLUDE, path)
    if allowed is None:
        return [f"{path}: its folder is in no row of the table"]
    found = []
    for quote, target in INCLUDE.findall(text):
        if quote == '"':
            if not (repo_files.ROOT / target).is_file():
                found.append(f'{path}: "{target}" is not a path from the root')
            elif not target.startswith(allowed):
                found.append(f"{path}: may not include {target}")
        else:
            folders = first_match(LIBRARIES, target)
            if folders and not path.startswith(folders):
                found.append(f"{path}: may not include <{target}>")
    return found


def self_test():
    """A check that cannot fail proves nothing."""
    wrong = (
        ("base/x.c", '#include "config/config.h"'),
        ("kernels/x.c", '#  include "config/config.h"'),
        ("engine/x.c", '#include "scheduler/worker.h"'),
        ("server/x.c", '#include "engine/batch.h"'),
        ("engine/x.c", '#include "error.h"'),
        ("scheduler/x.c", "#include <uv.h>"),
        ("engine/x.c", "#include <cuda_runtime.h>"),
        ("extra/x.c", ""),
    )
    right = (
        ("server/x.c", '#include "scheduler/worker.h"\n#include <uv.h>'),
        ("server/cmd/x.c", '#include "engine/batch.h"'),
        ("base/x.c", "#include <stdio.h>"),
    )
    return all(offences_of(*row) for row in wrong) and not any(offences_of(*row) for row in right)


if not self_test():
    sys.exit("check_layering: the self test failed")
sources = repo_files.files(".c", ".h", ".cu", ".cuh")
repo_files.close("check_layering", len(sources),
                 [o for path in sources for o in offences_of(path.as_posix(), repo_files.text(path))])
