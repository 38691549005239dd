#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Debian's json-schema-test-suite, draft 7, against our grammars.

usage: check_suite.py SCHEMA_CHECK [MODEL.gguf [LONGWAVE MAKE_TINY_MODEL]]
Every instance, in four spellings, must be accepted exactly if it is valid, and nine of ten schemas must be. With a model 20 texts
are drawn at random for each schema, over that model's tokens, and must be valid for Python's jsonschema; with the program two more
are answers of a server whose model has random weights, at temperature 2, and must be so, too."""
import contextlib
import decimal
import http.client
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

SUITE = pathlib.Path("/usr/share/json-schema-test-suite/tests/draft7")
OUT_OF_SCOPE = {"not", "if-then-else", "contains", "uniqueItems", "dependencies", "refRemote", "propertyNames"}
# Of the optional files: formats that are done. One integer is written 1.0 there, which our grammars do not write.
OPTIONAL = ["bignum"] + [f"format/{name}" for name in ("date-time", "date", "time", "email", "hostname", "ipv4", "ipv6", "json-pointer", "uri")]
BAR, SAMPLES, SKIPPED = 0.9, 20, 77
ANSWERS, TRIES, ENDED = 2, 6, 0.9
# Beyond the suite: what applications ask for.
OWN = {
    "closed": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": ["string", "null"]}, "c": {"enum": ["x", 2]}},
               "required": ["a", "c"], "additionalProperties": False},
    "many optional": {"type": "object", "properties": {f"key{i}": {"type": "boolean"} for i in range(20)}, "required": ["key7"]},
    "numbers": {"type": "object", "properties": {"lat": {"type": "number", "minimum": -90, "maximum": 90}, "cents": {"type": "number",
                "multipleOf": 0.01, "minimum": 0}, "n": {"type": "integer", "exclusiveMinimum": -17, "multipleOf": 7},
                "big": {"type": "integer", "maximum": 9223372036854775807}}, "required": ["lat", "cents", "n", "big"]},
    "strings": {"type": "object", "properties": {"code": {"type": "string", "pattern": "^[A-Z]{2,3}-[0-9]+$", "maxLength": 9},
                "text": {"type": "string", "minLength": 3, "maxLength": 12}, "search": {"type": "string", "pattern": "a.c|^x"}},
                "required": ["code", "text", "search"]},
    "tuples": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}], "additionalItems": {"type": "null"}, "minItems": 1,
               "maxItems": 4},
    "tree": {"definitions": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/definitions/node"}},
             "required": ["v"], "additionalProperties": False}}, "$ref": "#/definitions/node"},
    "union": {"oneOf": [{"type": "object", "properties": {"kind": {"const": k}, "v": v}, "required": ["kind", "v"]}
                        for k, v in (("s", {"type": "string"}), ("n", {"type": "number"}), ("l", {"type": "array", "maxItems": 2}))]},
    "merged": {"allOf": [{"properties": {"a": {"minimum": 3}}, "required": ["a"]}, {"properties": {"a": {"type": "integer", "maximum": 5}}},
                         {"type": "object", "maxProperties": 2, "propertyNames": {"pattern": "^[a-d]+$"}}]},
    "not": {"type": ["string", "integer"], "not": {"enum": ["a", "b", 1]}},
    "no integer": {"type": "number", "not": {"type": "integer"}},
    "no such number": {"type": "number", "minimum": -9, "maximum": 9, "not": {"enum": [0, 1, 2.5]}},
    "if": {"type": "integer", "if": {"minimum": 10}, "then": {"multipleOf": 10}, "else": {"minimum": 0}},
    **{f"format {name}": {"type": "string", "format": name}
       for name in ("date", "time", "date-time", "duration", "uuid", "email", "hostname", "ipv4", "ipv6", "uri", "json-pointer")},
}


class Tally:
    def __init__(self):
        self.schemas = self.accepted = self.without_value = self.instances = self.samples = self.asked = self.answers = self.faults = 0

    def fault(self, name, what):
        self.faults += 1
        print(f"{name}: {what}")


def spellings(text):
    """Of one instance."""
    value = json.loads(text)
    return [json.dumps(value, ensure_ascii=False), json.dumps(value), json.dumps(value, separators=(",", ":")),
            json.dumps(value, indent=2, ensure_ascii=False)]


def required(schema):
    """All names that a schema requires somewhere."""
    if isinstance(schema, list):
        return [name for part in schema for name in required(part)]
    if not isinstance(schema, dict):
        return []
    own = [name for name in schema.get("required", []) if isinstance(name, str)]
    return own + [name for part in schema.values() for name in required(part)]


def ask(program, request):
    program.stdin.write(json.dumps(request) + "\n")
    program.stdin.flush()
    line = program.stdout.readline()
    if not line:
        sys.exit(f"schema_check has ended at {request['schema']}")
    return json.loads(line)


class Daemon:
    """Asks a server for texts. What closes something is made likely, so that answers come to their end."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        self.bias = {str(self.post("/tokenize", {"content": close})[1]["tokens"][0]): 8 for close in '"]}'}

    def post(self, path, body):
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        return response.status, json.loads(response.read())

    def draw(self, schema, seed):
        """A text that ended by 'stop' or None, and what was wrong. Where names are required that a random model seldom writes, none ends."""
        if isinstance(schema, dict):
            schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
        for attempt in range(TRIES):
            status, answer = self.post("/v1/completions", {
                "prompt": "JSON: ", "guided_json": json.dumps(schema), "temperature": 2, "seed": 1000 * seed + attempt,
                "max_tokens": 400, "logit_bias": self.bias})
            if status != 200:
                return None, f"{status} {answer['error']['message']}"
            if answer["choices"][0]["finish_reason"] == "stop":
                return answer["choices"][0]["text"], None
        return None, None


def is_ready(port):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def daemon(binary, make_tiny_model):
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/tiny.gguf"
        subprocess.run([make_tiny_model, model, "context=1024"], check=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen([binary, "serve", "-m", model, "--port", str(port), "--log-level", "warn"], stdin=subprocess.DEVNULL)
        try:
            while not is_ready(port):
                if process.poll() is not None:
                    sys.exit(f"the server did not start: exit status {process.poll()}")
                time.sleep(0.05)
            yield Daemon(port)
        finally:
            process.terminate()
            process.wait()


def judge(schema, text, number):
    """What is wrong with a text, its fractions read as such numbers, or None."""
    import jsonschema
    read = json.loads(json.dumps(schema), parse_float=number)
    try:
        return next(jsonschema.Draft7Validator(read, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER).iter_errors(
            json.loads(text, parse_float=number)), None)
    except ValueError as error:
        return error


def check_samples(tally, name, schema, texts):
    if len(texts) < SAMPLES:
        tally.fault(name, f"{len(texts)} samples came to an end")
    for text in texts:
        tally.samples += 1
        check_text(tally, name, schema, text)


def check_text(tally, name, schema, text):
    fault = judge(schema, text, decimal.Decimal)
    if not fault and "multipleOf" not in json.dumps(schema):  # 0.07 is no multiple of 0.01 for doubles
        fault = judge(schema, text, float)
    if fault:
        tally.fault(name, f"{text!r} was drawn: {str(fault).splitlines()[0]}")


def check_answers(tally, server, name, schema):
    for i in range(ANSWERS):
        text, fault = server.draw(schema, tally.schemas * ANSWERS + i)
        tally.asked += 1
        if fault:
            tally.fault(name, f"the server: {fault}")
        elif text is not None:
            tally.answers += 1
            check_text(tally, name, schema, text)


def check_schema(tally, program, name, schema, tests, samples, server):
    texts, valid = [], []
    for test in tests:
        for text in spellings(json.dumps(test["data"])):
            texts.append(text)
            valid.append(test["valid"])
    tally.schemas += 1
    drawn = {"samples": SAMPLES, "likely": [json.dumps(name) for name in required(schema)]} if samples else {}
    answer = ask(program, {"schema": schema, "instances": texts, "draft7": True, "seed": tally.schemas, **drawn})
    if answer.get("empty"):
        tally.without_value += 1
        answer["accepts"] = [False] * len(texts)
    elif "error" in answer:
        print(f"{name}: not accepted: {answer['error']}")
        return
    tally.accepted += 1
    for text, wanted, got in zip(texts, valid, answer["accepts"]):
        tally.instances += 1
        if wanted != got:
            tally.fault(name, f"{'valid' if wanted else 'invalid'} {text} is {'accepted' if got else 'refused'}")
    if samples and not answer.get("empty"):
        check_samples(tally, name, schema, answer["samples"])
    if server and not answer.get("empty"):
        check_answers(tally, server, name, schema)


def check_files(tally, program, paths, samples, server):
    for path in paths:
        for group in json.loads(path.read_text()):
            check_schema(tally, program, f"{path.stem}, {group['description']}", group["schema"], group["tests"], samples, server)


def main():
    if not SUITE.is_dir():
        print("json-schema-test-suite is not installed")
        return SKIPPED
    decimal.getcontext().prec = 500
    samples = len(sys.argv) > 2
    program = subprocess.Popen(sys.argv[1:3], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    tally, more = Tally(), Tally()
    with daemon(*sys.argv[3:]) if len(sys.argv) > 3 else contextlib.nullcontext() as server:
        check_files(tally, program, [path for path in sorted(SUITE.glob("*.json")) if path.stem not in OUT_OF_SCOPE], samples, server)
        check_files(more, program, [SUITE / "optional" / f"{name}.json" for name in OPTIONAL], samples, server)
        for name, schema in OWN.items():
            check_schema(more, program, name, schema, [], samples, server)
    program.stdin.close()
    crashed = program.wait() != 0
    share = tally.accepted / tally.schemas
    ended = (tally.answers + more.answers) / max(1, tally.asked + more.asked)
    print(f"beyond it: {more.accepted} of {more.schemas} schemas, {more.instances} instances, {more.samples} samples, {more.answers} "
          f"answers of {more.asked}, {more.faults} faults")
    valued = tally.accepted - tally.without_value
    print(f"json_schema_suite: {tally.accepted} of {tally.schemas} schemas accepted ({share:.1%}, bar {BAR:.0%}); {tally.without_value} of "
          f"them allow no value, which a server refuses: without these {valued} of {tally.schemas} ({valued / tally.schemas:.1%}); "
          f"{tally.instances} instances, {tally.samples} samples and {tally.answers} answers of a server (of "
          f"{tally.asked} asked for) with {tally.faults} faults, bar 0")
    faults = tally.faults + more.faults + (more.accepted < more.schemas) + crashed + (server is not None and ended < ENDED)
    return 0 if share >= BAR and not faults else 1


sys.exit(main())
