#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: check_options.py LONGWAVE. Fails when a text made from the table of options is out of date, when the example file
does not load, or when an option does nothing."""
import re
import shutil
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

# Manual pages and completion know every option; roff has nothing to say of the pages where it is there.
def rows():
    section = None
    for line in output("--options-reference").stdout.splitlines():
        section = line[3:] if line.startswith("## ") else section
        if row := re.match(r"\| `--([a-z0-9-]+)`", line):
            yield section.startswith("["), row.group(1)


pages = {flag: output(flag).stdout for flag in ("--options-man", "--options-man-conf", "--options-completion")}
for of_file, name in rows():
    if ("--" + name).replace("-", "\\-") not in pages["--options-man"]:
        offences.append(f"longwave.1 lacks --{name}")
    if of_file and f".BR {name.replace('-', '_')} " not in pages["--options-man-conf"]:
        offences.append(f"longwave.conf.5 lacks {name}")
    if f"--{name} " not in pages["--options-completion"]:
        offences.append(f"completion lacks --{name}")
for flag in ("--options-man", "--options-man-conf"):
    if shutil.which("groff"):
        said = subprocess.run(["groff", "-man", "-ww", "-z"], input=pages[flag], capture_output=True, text=True, check=False)
        if said.returncode or said.stderr:
            offences.append(f"{flag}: {said.stderr}")


def completed(*words):
    script = ('. /dev/stdin; COMP_WORDS=(longwave "$@"); COMP_CWORD=$#; _longwave 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"')
    return subprocess.run(["bash", "-c", script, "x", *words], input=pages["--options-completion"], capture_output=True, text=True,
                          check=False).stdout.split()


for words, wanted in ((("ser",), ["serve"]), (("serve", "--max-b"), ["--max-batch", "--max-batch-tokens", "--max-body"]),
                      (("serve", "--cache", "e"), ["exact"]), (("bench", "--workl"), []),
                      (("bench", "ser"), ["serve"]), (("bench", "serve", "--workl"), ["--workload"]), (("inspect", "--max-b"), [])):
    if completed(*words) != wanted:
        offences.append(f"completion of {words} is {completed(*words)}")

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
