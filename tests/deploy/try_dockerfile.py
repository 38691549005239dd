#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: try_dockerfile.py [FOLDER]. Goes through deploy/Dockerfile where there is no Docker: each stage is a debootstrapped root,
COPY copies, RUN runs in a chroot, and at the end the entry point runs as the user. As root; FOLDER (a new one by default) keeps
the debootstrapped root for the next time."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BARE = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"}


def instructions(text):
    """(WORD, rest) of each, without comments and with its lines joined."""
    text = re.sub(r"^#.*\n", "", text, flags=re.M).replace("\\\n", " ")
    for line in text.splitlines():
        if line.strip():
            word, rest = line.split(None, 1)
            yield word.upper(), rest.strip()


class Stage:
    def __init__(self, base, folder):
        self.root, self.environment, self.user, self.entry = folder, {}, None, []
        subprocess.run(["cp", "-a", "--reflink=auto", base, folder], check=True)
        for path in ("/etc/resolv.conf", "/etc/hosts"):
            shutil.copy(path, folder / path[1:])
        for path in pathlib.Path("/etc/apt/apt.conf.d").glob("99*"):
            shutil.copy(path, folder / "etc/apt/apt.conf.d")

    def run(self, command):
        """In namespaces of its own, so that nothing stays mounted."""
        script = ('mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && exec chroot ${3:+--userspec="$3"} "$1" /bin/sh -c "$2"')
        subprocess.run(["unshare", "-m", "sh", "-c", script, "x", str(self.root), command, self.user or ""], check=True,
                       env={**BARE, **self.environment}, stdin=subprocess.DEVNULL)

    def copy(self, source, target):
        target = self.root / target.lstrip("/")
        target.mkdir(parents=True, exist_ok=True)
        names = " ".join(f"--exclude={shlex.quote('./' + line)}" for line in (ROOT / ".dockerignore").read_text().split())
        subprocess.run(f"tar -C {shlex.quote(str(source))} --anchored --no-wildcards-match-slash {names} -cf - . | tar -C {shlex.quote(str(target))} -xf - --no-same-owner",
                       shell=True, check=True)


def expand(text, arguments):
    return re.sub(r"\$\{(\w+)\}", lambda m: arguments.get(m[1], m[0]), text)


def main():
    keep = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        base = (keep or work) / "base"
        stages, arguments, stage = {}, {}, None
        for word, rest in instructions((ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")):
            print(f"== {word} {rest}", flush=True)
            rest = expand(rest, {**arguments, **(stage.environment if stage else {})}) if word in ("FROM", "COPY") else rest
            if word == "ARG":
                key, _, value = rest.partition("=")
                arguments[key] = os.environ.get(key, value)
                if stage:
                    stage.environment[key] = arguments[key]
            elif word == "FROM":
                image, *alias = rest.split()
                suite = {"debian:12": "bookworm", "debian:12-slim": "bookworm"}[image]
                if not (base / "bin").exists():
                    subprocess.run(["debootstrap", "--variant=minbase", suite, base], check=True, stdout=subprocess.DEVNULL)
                stage = Stage(base, work / f"stage{len(stages)}")
                stages[alias[1] if alias else len(stages)] = stage
            elif word == "COPY":
                *options, source, target = rest.split()
                origin = stages[options[0].split("=")[1]].root / source.lstrip("/") if options else ROOT / source
                stage.copy(origin, target)
            elif word == "RUN":
                stage.run(rest)
            elif word == "ENV":
                stage.environment |= dict(pair.split("=", 1) for pair in shlex.split(rest))
            elif word == "USER":
                stage.user = rest
            elif word == "ENTRYPOINT":
                stage.entry = json.loads(rest)
            elif word not in ("EXPOSE", "CMD"):
                sys.exit(f"{word} is not known here")
        stage.run(shlex.join([*stage.entry, "--version"]))
        stage.run("test $(id -un) = longwave && test -w /var/lib/longwave/sessions && test ! -w /etc/longwave && longwave serve 2>&1 | "
                  "grep -q 'wants --model'")
    print("try_dockerfile: every line runs")


main()
