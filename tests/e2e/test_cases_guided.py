# SPDX-License-Identifier: Apache-2.0
"""Inputs that broke servers like this one, of what constrains answers. Numbers are those of the project's list of cases."""
import json

import pytest

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "Hello"}]


def by_schema(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def nested(open_text, close_text, n, middle=""):
    return open_text * n + middle + close_text * n


@pytest.mark.parametrize("pattern", ["((((", "[a-", "a{2,1}", "*a", "(?P<", "\\", "a(?=b)", "\\1", "[z-a]"])
def test_8_patterns_that_are_none(tiny, pattern):
    for fields in (by_schema({"type": "string", "pattern": pattern}), {"regex": pattern}):
        for stream in (False, True):
            status, error = tiny.error(CHAT, {"messages": USER, "max_tokens": 4, "stream": stream, **fields})
            assert status == 400 and error["code"] in ("invalid_schema", "invalid_value"), error


def schema_text(text):
    """A body whose schema is not made by json.dumps, which has its own limit of depth."""
    return ('{"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "response_format": {"type": "json_schema", '
            '"json_schema": {"name": "x", "schema": %s}}}' % text).encode()


DEEP = 60000


@pytest.mark.parametrize("body", [
    schema_text(nested('{"type": "array", "items": ', "}", DEEP, "{}")),
    schema_text(nested('{"anyOf": [', "]}", DEEP, "{}")),
    schema_text(nested('{"properties": {"a": ', "}}", 60, "{}")),  # as deep as JSON may be
    schema_text('{"$ref": "#"}'),
    schema_text('{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}'),
    schema_text('{"allOf": [{"$ref": "#"}]}'),
    schema_text('{"type": "string", "pattern": "%s"}' % nested("(", ")", DEEP, "a")),
    schema_text('{"type": "string", "pattern": "^+[a-z]$"}'),
    schema_text('{"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"}'),
    schema_text('{"enum": [%s]}' % ",".join(map(str, range(100_000)))),
    json.dumps({"messages": USER, "max_tokens": 4, "grammar": "root ::= " + nested("(", ")", DEEP, '"a"')}).encode(),
    json.dumps({"messages": USER, "max_tokens": 4, "grammar": "root ::= root"}).encode(),
    json.dumps({"messages": USER, "max_tokens": 4, "grammar": "root ::= (" * DEEP}).encode(),
    json.dumps({"messages": USER, "max_tokens": 4, "grammar": "root ::= " + '"a"{1000000}'}).encode(),
    json.dumps({"messages": USER, "max_tokens": 4, "grammar": "".join(f"r{i} ::= r{i + 1}\n" for i in range(DEEP)) + "root ::= r0"}).encode(),
    json.dumps({"messages": USER, "max_tokens": 4, "regex": nested("(", ")", DEEP, "a")}).encode(),
    json.dumps({"messages": USER, "max_tokens": 4, "regex": "(" * DEEP}).encode(),
    json.dumps({"messages": USER, "max_tokens": 4, "regex": "(a|" * 2000 + "b" + ")*" * 2000}).encode(),
    json.dumps({"messages": USER, "max_tokens": 4, "choice": ["a" * 100_000, "b"] * 20}).encode(),
])
def test_9_what_is_deep_or_endless_is_bounded(tiny, body):
    """Refused with a reason, or answered, and the server lives."""
    status, _, answer = tiny.request("POST", CHAT, body)
    if status != 200:
        error = json.loads(answer)["error"]
        assert status == 400 and error["code"] and error["message"], error
    assert tiny.status("/health") == 200


@pytest.mark.parametrize("body", [schema_text('{"$ref": "#"}'), schema_text('{"allOf": [{"$ref": "#"}]}'),
                                  schema_text('{"type": "string", "pattern": "^+[a-z]$"}'),
                                  schema_text(nested('{"type": "array", "items": ', "}", DEEP, "{}")),
                                  json.dumps({"messages": USER, "grammar": "root ::= root"}).encode()])
def test_9_what_has_no_meaning_is_refused(tiny, body):
    status, _, answer = tiny.request("POST", CHAT, body)
    assert status == 400 and json.loads(answer)["error"]["message"]


@pytest.mark.parametrize("fields", [{"regex": "[0-9]{6}"}, {"choice": ["yes", "no"]}, {"grammar": 'root ::= "a" [b-d]+ "e"'},
                                    by_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})])
@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"top_k": 1}, {"temperature": 2}])
def test_10_logprobs_beside_a_grammar_are_finite(tiny, fields, sampling):
    body = {"messages": USER, "max_tokens": 12, "logprobs": True, "top_logprobs": 20, **fields, **sampling}
    whole = tiny.post(CHAT, body)[1]["choices"][0]
    frames = tiny.frames(CHAT, body)
    tokens = whole["logprobs"]["content"]
    assert tokens and all(-9999 <= token["logprob"] <= 0 for token in tokens)
    assert all(-9999 <= top["logprob"] <= 0 for token in tokens for top in token["top_logprobs"])
    if "temperature" not in sampling or sampling["temperature"] == 0:
        joined = [token for frame in frames for token in (frame["choices"][0]["logprobs"] or {"content": []})["content"]]
        assert joined == tokens


@pytest.mark.parametrize("stream", [False, True])
def test_11_logprobs_beside_tools(tiny, stream):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    body = {"messages": USER, "tools": tools, "logprobs": True, "max_tokens": 8, "ignore_eos": True}
    if stream:
        frames = tiny.frames(CHAT, body)
        tokens = [token for frame in frames for token in (frame["choices"][0]["logprobs"] or {"content": []})["content"]]
    else:
        tokens = tiny.post(CHAT, body)[1]["choices"][0]["logprobs"]["content"]
    assert len(tokens) == 8 and all(token["top_logprobs"] == [] for token in tokens)


TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": False}}} for name in ("lamp", "fan")]


def joined_calls(frames):
    """The calls of a stream, put together; checks what each delta may have."""
    calls = {}
    for frame in frames:
        for choice in frame["choices"]:
            for piece in choice["delta"].get("tool_calls") or ():
                first = piece["index"] not in calls
                assert ("id" in piece, "type" in piece, "name" in piece["function"]) == (first, first, first)
                if first:
                    assert piece["index"] == len(calls)
                    calls[piece["index"]] = {"id": piece["id"], "type": piece["type"],
                                             "function": {"name": piece["function"]["name"], "arguments": ""}}
                calls[piece["index"]]["function"]["arguments"] += piece["function"].get("arguments", "")
    return list(calls.values())


def without_ids(calls):
    return [call["function"] for call in calls]


@pytest.mark.parametrize("model", ["smollm2", "tiny"])
def test_6_a_call_cut_off_ends_with_length(request, model):
    server = request.getfixturevalue(model)
    body = {"messages": USER, "tools": TOOLS, "tool_choice": "required", "temperature": 0}
    n_cut = 0
    for max_tokens in range(1, 24):
        whole = server.post(CHAT, {**body, "max_tokens": max_tokens})[1]["choices"][0]
        frames = server.frames(CHAT, {**body, "max_tokens": max_tokens})
        reason = [choice["finish_reason"] for frame in frames for choice in frame["choices"]][-1]
        calls = whole["message"].get("tool_calls") or []
        assert reason == whole["finish_reason"] and without_ids(joined_calls(frames)) == without_ids(calls)
        assert reason in ("length", "tool_calls")
        n_cut += reason == "length"
        if reason == "tool_calls":
            assert all(set(json.loads(call["function"]["arguments"])) == {"on"} for call in calls)
    assert n_cut > 3


def test_7_calls_side_by_side(tiny):
    """Random weights go on with a second call now and then."""
    for seed in range(60):
        body = {"messages": USER, "tools": TOOLS, "tool_choice": "required", "temperature": 1.5, "seed": seed, "max_tokens": 300}
        whole = tiny.post(CHAT, body)[1]["choices"][0]
        calls = whole["message"].get("tool_calls") or []
        if len(calls) < 2:
            continue
        streamed = joined_calls(tiny.frames(CHAT, body))
        assert without_ids(streamed) == without_ids(calls) and len({call["id"] for call in streamed}) == len(streamed)
        if whole["finish_reason"] == "tool_calls":
            return
    raise AssertionError("no seed gives two calls")
