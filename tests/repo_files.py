# SPDX-License-Identifier: Apache-2.0
"""What the check scripts share: the project's own files, and the closing line."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE_FOLDERS = ("base", "config", "kernels", "engine", "scheduler", "server", "tests")


def files(*suffixes, folders=None):
    """Paths relative to the root, sorted; build folders and dot folders are left out."""
    found = []
    for where, names, leaves in os.walk(ROOT):
        names[:] = [n for n in names if n == ".ci" or not n.startswith((".", "build")) and n != "__pycache__"]
        for leaf in leaves:
            if leaf == ".git":  # of a linked work tree
                continue
            path = (pathlib.Path(where) / leaf).relative_to(ROOT)
            if (not suffixes or path.suffix in suffixes) and (not folders or path.parts[0] in folders):
                found.append(path)
    return sorted(found)


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def close(name, checked, offences):
    for offence in offences:
        print(offence)
    print(f"{name}: {checked} files, {len(offences)} offences")
    sys.exit(1 if offences else 0)
