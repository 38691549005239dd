#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: check_options.py LONGWAVE. Fails when a text made from the table of options is out of date, when the example file
does not load, or when an option does nothing."""
import re
import subprocess
import sys
import tempfile

import repo_files

longwave = sys.argv[1]
offences = []


def output(*args):
    return subprocess.run([longwave, *args], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


for flag, path in (("--options-reference", "docs/options.md"), ("--options-example", "deploy/example.conf")):
    target = repo_files.ROOT / path
    if not target.is_file() or target.read_text() != output(flag).stdout:
        offences.append(f"{path} is out of date: longwave {flag} > {path}")

# Every default of the example must load: the failure that is left is the model file.
example = output("--options-example").stdout
settings = re.sub(r"(?m)^#(?=\w+ = \S)", "", example)
with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
    file.write(settings)
    file.flush()
    result = output("serve", "--config", file.name)
    if "wants --model" not in result.stderr:
        offences.append(f"the example file does not load: {result.stderr.strip()}")
if settings.count("\n#") == example.count("\n#"):
    offences.append("the example file has no settings")

header = repo_files.text("config/config.h")
fields = re.findall(r"\b(\w+)(?=[,;])", re.search(r"typedef struct Config \{(.*?)\} Config;", re.sub(
    r"/\*.*?\*/", "", header, flags=re.S), re.S).group(1))
users = "".join(repo_files.text(p) for p in repo_files.files(".c") if p.parts[0] not in ("config", "tests"))
for field in fields:
    if field not in ("arena", "config") and not re.search(rf"(?:->|\.){field}\b", users):
        offences.append(f"nothing reads the option behind Config.{field}")
repo_files.close("check_options", len(fields), offences)
