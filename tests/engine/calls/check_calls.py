#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random schemas of tools, and what a random model writes under their grammars in each form of calls.

usage: check_calls.py CALL_CHECK [SCHEMAS a format]
What the parser reads must be one call whose arguments are valid for Python's jsonschema."""
import decimal
import json
import random
import subprocess
import sys

import jsonschema

FORMATS = ["hermes", "qwen3-coder", "glm", "kimi-k2", "deepseek-v3", "deepseek-v3.1", "mistral", "gemma", "gemma4", "lfm2", "pythonic",
           "llama3-json", "generic", "gpt-oss"]
BARE = {"gemma", "gemma4", "lfm2", "pythonic"}
SAMPLES, KEYS = 5, ["city", "n_2", "über", "a-b", "x", "first name", "$filter", "a\"b", "true"]
# At most one key is required and the rest is small, or few random texts come to their end.
STRINGS = [{}, {"maxLength": 4}, {"minLength": 2, "maxLength": 40}, {"pattern": "^[A-Z<]{2,3}$"}, {"pattern": "</"}, {"format": "date"},
           {"enum": ["", "a b", "</p>", "12", "null"]}, {"const": " x "}, {"not": {"enum": ["a"]}}]


def make(rng, depth, bare):
    kinds = ["string"] * 3 + ["number", "integer", "enum", "union", "nothing", "ref"] + ["object", "array", "anyOf", "tuple"] * (depth > 0)
    kind = rng.choice(kinds)
    if kind == "string":
        return {"type": "string", **rng.choice(STRINGS)}
    if kind in ("number", "integer"):
        return {"type": kind, **rng.choice([{}, {"minimum": -3, "maximum": 120}, {"exclusiveMinimum": 0}, {"multipleOf": 5}])}
    if kind == "enum":
        return {"enum": rng.choice([["a", 1, None], ["1", 1, "true", True], [[], {"k": "v"}, "[]"], [1.5, -2], ["null", None]])}
    if kind == "union":
        return {"type": rng.choice([["string", "null"], ["integer", "string"], ["boolean", "null"], ["array", "string", "number"]])}
    if kind == "array":
        return {"type": "array", "items": make(rng, depth - 1, bare), "minItems": rng.randrange(2), "maxItems": 3}
    if kind == "tuple":
        return {"type": "array", "prefixItems": [make(rng, depth - 1, bare), {"type": "string"}], "items": False}
    if kind == "anyOf":
        return {"anyOf": [make(rng, depth - 1, bare), make(rng, depth - 1, bare)]}
    if kind == "object":
        return make_object(rng, depth - 1, bare)
    return {"$ref": "#/$defs/text"} if kind == "ref" else {}


def make_object(rng, depth, bare):
    keys = rng.sample([key for key in KEYS if not bare or not set(key) & set(" $\"")], rng.randrange(5))
    schema = {"type": "object", "properties": {key: make(rng, depth, bare) for key in keys},
              "required": [key for key in keys if rng.random() < 0.5]}
    if rng.random() < 0.7:
        schema["additionalProperties"] = rng.choice([False, True, {"type": "string", "maxLength": 3}, {"type": ["null", "string"]}])
    if rng.random() < 0.2:
        schema["patternProperties"] = {"^z": {"type": "integer"}}
    return schema


def exact(text):
    """A number with a fraction; 3.0 is an integer for JSON Schema."""
    value = decimal.Decimal(text)
    return int(value) if value == value.to_integral_value() else value


def check(program, name, schema, seed):
    """(texts, faults)"""
    program.stdin.write(json.dumps({"format": name, "parameters": schema, "samples": SAMPLES, "seed": seed}) + "\n")
    program.stdin.flush()
    line = program.stdout.readline()
    if not line:
        sys.exit(f"call_check has ended at {name}, {json.dumps(schema)}")
    answer = json.loads(line)
    if "error" in answer:
        print(f"{name}: {json.dumps(schema)}: {answer['error']}")
        return 0, 1
    exact_schema = json.loads(json.dumps(schema), parse_float=decimal.Decimal)
    validator = jsonschema.Draft202012Validator(exact_schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    faults = 0
    for sample in answer["samples"]:
        try:
            arguments = json.loads(sample["arguments"] or "null", parse_float=exact)
            fault = next(validator.iter_errors(arguments), None)
        except ValueError as error:
            fault = error
        if fault:
            faults += 1
            print(f"{name}: {json.dumps(schema)}: {sample['text']!r} is {sample['arguments']!r}: {str(fault).splitlines()[0]}")
    return len(answer["samples"]), faults


def main():
    decimal.getcontext().prec = 500
    wanted = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    program = subprocess.Popen(sys.argv[1:2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    texts = faults = 0
    for name in FORMATS:
        rng, ended = random.Random(name), 0
        for seed in range(wanted):
            schema = {**make_object(rng, 2, name in BARE), "$defs": {"text": {"type": ["string", "null"], "maxLength": 5}}}
            n, wrong = check(program, name, schema, seed + 1)
            ended, faults = ended + n, faults + wrong
        if ended < wanted * SAMPLES / 2:
            faults += 1
            print(f"{name}: only {ended} of {wanted * SAMPLES} texts came to their end")
        texts += ended
    program.stdin.close()
    faults += program.wait() != 0
    print(f"tool_calls: {len(FORMATS)} forms, {wanted} random schemas each, {texts} calls with {faults} faults, bar 0")
    return 1 if faults else 0


sys.exit(main())
