# SPDX-License-Identifier: Apache-2.0
"""Answers that follow a grammar, a pattern or a choice: they always parse, whatever the sampling, in streams and whole."""
import json
import re

import pytest

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "Give me a person as JSON."}]
PERSON = r'\{"name": "[A-Z][a-z]{1,12}", "occupation_of_the_person": "[a-z ]{3,20}", "age": [1-9][0-9]?\}'
JSON = r'''
root   ::= object
object ::= "{" (pair ("," pair)*)? "}"
pair   ::= string ":" value
value  ::= object | array | string | number | "true" | "false" | "null"
array  ::= "[" (value ("," value){0,3})? "]"
string ::= "\"" char{0,12} "\""
char   ::= [^"\\\x00-\x1F] | "\\" ["\\/bfnrt]
number ::= "-"? ("0" | [1-9] [0-9]{0,5}) ("." [0-9]{1,4})?
'''
WILD = {"temperature": 1.7, "top_p": 1, "logit_bias": {"5": 10}}


def content(answer, choice=0):
    message = answer["choices"][choice]
    return message["message"]["content"] if "message" in message else message["text"]


@pytest.fixture(params=["tiny", "smollm2"])
def server(request):
    return request.getfixturevalue(request.param)


def test_a_choice_is_one_of_them(server):
    words = ["yes", "no", "maybe so", "vielleicht", "\U0001F600"]
    for seed in range(3):
        for name in ("choice", "guided_choice"):
            status, answer = server.post(CHAT, {"messages": MESSAGES, name: words, "seed": seed, **WILD})
            assert status == 200 and content(answer) in words
            assert answer["choices"][0]["finish_reason"] == "stop"
    status, answer = server.post(COMPLETION, {"prompt": "x", "structured_outputs": {"choice": words}, "n": 5, **WILD})
    assert status == 200 and all(content(answer, i) in words for i in range(5))


def test_a_pattern_is_matched(server):
    for seed in range(3):
        status, answer = server.post(CHAT, {"messages": MESSAGES, "regex": PERSON, "seed": seed, **WILD})
        assert status == 200 and answer["choices"][0]["finish_reason"] == "stop"
        assert re.fullmatch(PERSON, content(answer))
        json.loads(content(answer))


def test_json_by_a_grammar_parses(server):
    n_whole = 0
    for seed in range(5):
        body = {"prompt": "{", "grammar": JSON, "seed": seed, "max_tokens": 250, "temperature": 1.2, "n": 2}
        status, answer = server.post(COMPLETION, body)
        assert status == 200
        for choice in answer["choices"]:
            if choice["finish_reason"] == "stop":
                json.loads(choice["text"])
                n_whole += 1
            else:
                assert choice["finish_reason"] == "length"
    assert n_whole > 2


def test_forced_text_changes_nothing_but_the_time(server):
    """Log-probabilities are asked for row by row: text that is known ahead takes another way, to the same ids."""
    body = {"messages": MESSAGES, "regex": PERSON, "temperature": 0.9, "seed": 3, "frequency_penalty": 0.5}
    plain = server.post(CHAT, body)[1]
    told = server.post(CHAT, {**body, "logprobs": True, "top_logprobs": 2})[1]
    assert content(plain) == content(told)
    assert plain["usage"]["completion_tokens"] == told["usage"]["completion_tokens"]
    tokens = told["choices"][0]["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens) == content(told)
    assert all(-1e4 < token["logprob"] <= 0 for token in tokens)
    assert content(server.post(CHAT, body)[1]) == content(plain)


def test_streams_give_the_same(server):
    body = {"messages": MESSAGES, "regex": PERSON, "temperature": 0.9, "seed": 5, "n": 2}
    whole = server.post(CHAT, body)[1]
    texts, finishes = ["", ""], [None, None]
    for chunk in server.frames(CHAT, {**body, "stream": True}):
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["delta"].get("content") or ""
            finishes[choice["index"]] = choice["finish_reason"] or finishes[choice["index"]]
    assert texts == [content(whole, 0), content(whole, 1)] and finishes == ["stop", "stop"]


def test_other_fields_go_along(server):
    body = {"prompt": "a", "temperature": 1.5, "seed": 1, "max_tokens": 40}
    text = content(server.post(COMPLETION, {**body, "regex": "[a-z]{0,60}", "min_tokens": 5, "ignore_eos": True})[1])
    assert re.fullmatch("[a-z]{5,60}", text)
    text = content(server.post(COMPLETION, {**body, "regex": "ab?", "min_tokens": 30})[1])
    assert text == "ab"  # nothing may follow, so it ends
    text = content(server.post(COMPLETION, {**body, "regex": "x{3}stop[a-z]+", "stop": "stop"})[1])
    assert text == "xxx"
    answer = server.post(COMPLETION, {**body, "regex": "(x|y)z{300}", "max_tokens": 3})[1]
    assert answer["choices"][0]["finish_reason"] == "length" and content(answer)[0] in "xy"
    assert content(server.post(COMPLETION, {**body, "choice": [""], "regex": ""})[1]) == ""
    text = content(server.post(COMPLETION, {**body, "regex": "[ab]{20}", "logit_bias": {}, "top_k": 1, "min_p": 0.5})[1])
    assert re.fullmatch("[ab]{20}", text)


def test_mistakes_are_named(server):
    for fields, param, code, text in (
            ({"grammar": "root ::= a b"}, "grammar", "invalid_schema", "rule 'a' is used but not defined"),
            ({"grammar": "root ::= \"x"}, "grammar", "invalid_schema", "rule 'root', offset 11"),
            ({"guided_grammar": "root ::= root \"x\""}, "guided_grammar", "invalid_schema", "left-recursive"),
            ({"regex": "a(?=b)"}, "regex", "invalid_schema", "offset 1: lookahead"),
            ({"regex": "(" * 60000}, "regex", "invalid_schema", "nested too deeply"),
            ({"regex": "[a-z]{99999}"}, "regex", "too_large", "offset 5"),
            ({"structured_outputs": {"regex": "(("}}, "structured_outputs.regex", "invalid_schema", "not closed"),
            ({"choice": ["a", 1]}, "choice[1]", "invalid_value", "choice[1]"),
            ({"choice": ["a"], "regex": "b"}, "regex", "invalid_value", "exclude each other")):
        for route, prompt in ((CHAT, {"messages": MESSAGES}), (COMPLETION, {"prompt": "x"})):
            status, error = server.error(route, {**prompt, **fields})
            assert status == 400 and error["param"] == param and error["code"] == code and text in error["message"]


def test_many_that_take_long_at_once(tiny):
    """Requests without a grammar, or with one that is kept, are answered beside them."""
    assert tiny.post(COMPLETION, {"prompt": "a", "max_tokens": 4, "choice": ["kept"]})[0] == 200
    sockets = [tiny.open_post(COMPLETION, {"prompt": "a", "max_tokens": 4, "grammar": 'root ::= (("a"{0,99}){0,99}){0,%d}' % (60 + i)})
               for i in range(12)]
    for more in ({}, {"choice": ["kept"]}):
        assert tiny.post(COMPLETION, {"prompt": "a", "max_tokens": 4, **more})[0] == 200
    for s in sockets:
        s.close()
    assert tiny.post(COMPLETION, {"prompt": "a", "max_tokens": 4, "choice": ["new"]})[0] == 200
