#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares longwave's template interpreter with Python's jinja2 on the chat templates inside a source package.

usage: compare_templates.py TARBALL RENDER_TEMPLATE [EXTRA.jinja ...]
TARBALL: llama-cpp-python's source package; RENDER_TEMPLATE: build/tests/support/render_template.
Needs the packages jinja2 and transformers. Prints a line for each difference and a closing count; the status is 1
when a template that renders under jinja2 renders differently here.
"""
import datetime
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import jinja2
from transformers.utils import chat_template_utils

NOW = 1700000000
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city, now.\nSecond line.", "parameters": {
        "type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "Which \"city\""},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "days": {"type": ["integer", "null"], "minimum": 1},
            "where": {"type": "object", "properties": {"lat": {"type": "number"}, "tags": {"type": "array", "items": {"type": "string"}}}}}}}},
    {"type": "function", "function": {"name": "stop", "description": "Stop", "parameters": {"type": "object", "properties": {}}}}]


def call(arguments, number=0):
    return {"id": f"call0000{number}", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


SYSTEM = {"role": "system", "content": "You are <b>kind</b>. Café — 漢字 😊"}
USER = {"role": "user", "content": "  What's the weather in \"Zürich\"?\n<|im_end|>  "}
ANSWER = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nSunny & 21°C"}
THOUGHT = {"role": "assistant", "content": "Sunny.", "reasoning_content": "Let me think.\n"}
ARGUMENTS = {"city": "Zürich", "days": 2, "where": {"lat": 47.5, "tags": ["a", None, True]}}
RESULT = {"role": "tool", "tool_call_id": "call00000", "name": "get_weather", "content": "{\"t\": 21.5}"}


def tool_turn(arguments, content=""):
    return [USER, {"role": "assistant", "content": content, "tool_calls": [call(arguments)]}, RESULT]


CONVERSATIONS = {
    "plain": [USER], "system": [SYSTEM, USER], "multi": [USER, ANSWER, USER], "system multi": [SYSTEM, USER, ANSWER, USER, THOUGHT, USER],
    "ends with answer": [USER, ANSWER], "thought": [USER, THOUGHT], "two users": [USER, USER], "late system": [USER, SYSTEM],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}],
    "call": tool_turn(ARGUMENTS)[:2], "result": tool_turn(ARGUMENTS), "result text": tool_turn(json.dumps(ARGUMENTS)),
    "result and on": [SYSTEM] + tool_turn(ARGUMENTS, "I look.") + [ANSWER, USER],
    "no content": [USER, {"role": "assistant", "tool_calls": [call(ARGUMENTS)]}, RESULT],
    "null content": [USER, {"role": "assistant", "content": None, "tool_calls": [call(ARGUMENTS)]}, RESULT],
    "two calls": [USER, {"role": "assistant", "content": "", "tool_calls": [call(ARGUMENTS), call({}, 1)]}, RESULT, {**RESULT, "tool_call_id": "call00001"}],
    "empty": [],
}
VARIANTS = [{}, {"tools": TOOLS}, {"enable_thinking": False}, {"enable_thinking": True, "tools": TOOLS, "reasoning_effort": "low"}]


def contexts():
    for name, messages in CONVERSATIONS.items():
        for number, variant in enumerate(VARIANTS):
            for prompt in (False, True):
                base = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>"}
                yield f"{name} {number} {prompt}", {"messages": messages, "add_generation_prompt": prompt, **base, **variant}


def reference(source):
    """A function from context to text, or to None where jinja2 refuses."""
    try:
        template = chat_template_utils._compile_jinja_template(source)
        fixed = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)
        template.globals["strftime_now"] = fixed.strftime
    except Exception as error:
        return lambda context: (None, repr(error))

    def render(context):
        try:
            return template.render(**json.loads(json.dumps(context))), None
        except Exception as error:
            return None, repr(error)
    return render


def sources(arguments):
    with tarfile.open(arguments[0]) as package:
        for member in package:
            if member.name.endswith(".jinja"):
                yield pathlib.Path(member.name).name, package.extractfile(member).read().decode()
    for path in arguments[2:]:
        yield path, pathlib.Path(path).read_text(encoding="utf-8")


def main():
    program, rendered, unequal, refused, lenient = sys.argv[2], 0, 0, 0, {}
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, (name, context) in enumerate(contexts()):
            path = pathlib.Path(folder, f"{number}.json")
            path.write_text(json.dumps(context))
            files.append((name, path, context))
        for template_name, source in sources(sys.argv[1:]):
            source_path = pathlib.Path(folder, "template")
            source_path.write_text(source, encoding="utf-8", newline="")
            out = subprocess.run([program, source_path, *(path for _, path, _ in files)], capture_output=True, check=True)
            render = reference(source)
            for (name, _, context), line in zip(files, out.stdout.decode().splitlines(), strict=True):
                ours = json.loads(line)
                theirs, error = render(context)
                if theirs is None:
                    refused += 1
                    if "text" in ours:
                        lenient.setdefault((template_name, error[:150]), []).append(name)
                    continue
                rendered += 1
                if ours.get("text") != theirs:
                    unequal += 1
                    print(f"UNEQUAL {template_name}: {name}\n  theirs: {theirs!r}\n  ours:   {ours.get('text', ours)!r}")
    for (template_name, error), names in lenient.items():
        print(f"only jinja2 refuses {template_name}: {len(names)} times, {error}")
    print(f"{rendered} rendered by jinja2, {rendered - unequal} equal, {unequal} unequal; {refused} refused by jinja2")
    return 1 if unequal else 0


sys.exit(main())
