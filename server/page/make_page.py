#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: make_page.py OUTPUT INDEX.html STYLE.css SCRIPT.js... Writes a C source with the page as one document, its ETag, and a
Content-Security-Policy that lets nothing in but this style and this script, by their hashes, and no connection but to the server."""
import base64
import hashlib
import pathlib
import sys

POLICY = ("default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; img-src data:; base-uri 'none'; "
          "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")


def source_hash(text):
    """As browsers hash what is between the tags."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def body_of(path):
    """Without the licence line, which the document has once."""
    first, rest = pathlib.Path(path).read_text(encoding="utf-8").split("\n", 1)
    assert "SPDX-License-Identifier" in first, path
    return rest


def array(name, text):
    data = text.encode() + b"\0"
    rows = (",".join(map(str, data[i:i + 32])) for i in range(0, len(data), 32))
    return f"extern const char {name}[];\nconst char {name}[] = {{\n" + ",\n".join(rows) + "};\n"


output, index, style, *scripts = sys.argv[1:]
style = body_of(style)
script = '"use strict";\n' + "".join(map(body_of, scripts))
assert "</" not in style + script, "would end the element that it is in"
page = pathlib.Path(index).read_text(encoding="utf-8")
for mark, text in (("<style></style>", f"<style>{style}</style>"), ("<script></script>", f"<script>{script}</script>")):
    assert page.count(mark) == 1, mark
    page = page.replace(mark, text)
etag = '"' + hashlib.sha256(page.encode()).hexdigest()[:32] + '"'
policy = POLICY.format(script=source_hash(script), style=source_hash(style))
source = array("page_text", page) + array("page_etag", etag) + array("page_security_policy", policy)
pathlib.Path(output).write_text(source, encoding="ascii")
