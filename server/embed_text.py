#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: embed_text.py INPUT NAME OUTPUT. Writes a C source with the file's bytes and a NUL as the array NAME."""
import pathlib
import sys

data = pathlib.Path(sys.argv[1]).read_bytes() + b"\0"
rows = [",".join(map(str, data[i:i + 32])) for i in range(0, len(data), 32)]
text = f"extern const char {sys.argv[2]}[];\nconst char {sys.argv[2]}[] = {{\n" + ",\n".join(rows) + "};\n"
pathlib.Path(sys.argv[3]).write_text(text, encoding="ascii")
