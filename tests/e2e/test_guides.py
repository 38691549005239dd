# SPDX-License-Identifier: Apache-2.0
"""How grammars get compiled: for how long, for whom, how often; and what is told of those that are not followed."""
import concurrent.futures
import json
import re

import pytest

import longwave_server

CHAT = "/v1/chat/completions"
ASK = [{"role": "user", "content": "Hi"}]
COMPILES = "longwave_grammar_compiles_total"


def automaton(n, salt):
    """A schema that takes a while: what its patterns have in common is looked for, two by two."""
    return {"type": "object", "properties": {
        f"p{i}": {"allOf": [{"pattern": f"^(a|b)*a(a|b){{10}}c{salt}{i}"}, {"pattern": f"(b|a){{9}}c{salt}{i}$"}]} for i in range(n)}}


# A schema of so many is longer than a grammar may be: too much on a machine of any speed.
TOO_MANY = 400


def tool(name, parameters, **more):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def asking(schema):
    return {"messages": ASK, "max_tokens": 4,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """With a counter of compilations that nobody else moves, and room for many tools."""
    path = longwave_server.make_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf", "context=65536")
    server = longwave_server.Server(path, "--alias", "tiny")
    yield server
    assert server.stop() == 0


def test_who_asks_for_the_same_waits_for_one_compilation(server):
    before = server.metric(COMPILES)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: server.post(CHAT, asking(automaton(12, "s")))[0], range(8)))
    assert answers == [200] * 8
    assert server.metric(COMPILES) == before + 1


def test_thirty_tool_sets_in_turn_compile_once_each(server):
    """They are small: the kept ones are limited by their number alone."""
    sets = [{"messages": ASK, "max_tokens": 1, "tool_choice": "required", "tools": [tool(f"kept{i}x{j}", {
        "type": "object", "properties": {"text": {"type": "string"}, f"n{i}": {"type": "integer"}}}) for j in range(3)]} for i in range(30)]
    before = server.metric(COMPILES)
    for _ in range(2):
        assert {server.post(CHAT, one)[0] for one in sets} == {200}
    assert server.metric(COMPILES) == before + len(sets)


def test_what_is_not_supported_is_not_tried_again(server):
    ask = {"messages": ASK, "tool_choice": "required", "tools": [tool("f", LENIENT)]}
    before = server.metric(COMPILES)
    first = server.error(CHAT, ask)
    assert first[0] == 400 and "uniqueItems" in first[1]["message"]
    assert server.error(CHAT, ask) == first and server.metric(COMPILES) == before + 1


def test_what_is_too_much_is_not_tried_again(server):
    too_much, before = asking(automaton(TOO_MANY, "t")), server.metric(COMPILES)
    first = server.error(CHAT, too_much)
    assert first[0] == 400 and first[1]["code"] == "too_large"
    assert server.metric(COMPILES) == before + 1
    assert server.error(CHAT, too_much) == first
    assert server.metric(COMPILES) == before + 1


def test_a_client_that_leaves_holds_no_place(server):
    """Whatever its compilation has come to by then: others get theirs."""
    for i in range(8):
        server.open_post(CHAT, asking(automaton(TOO_MANY, f"u{i}x"))).close()
    assert server.post(CHAT, asking(automaton(3, "v")))[0] == 200
    server.wait_idle(60)


def test_clients_take_turns(tmp_path_factory):
    """One of them has many that take long; the schema of the other is not behind all of these."""
    folder = tmp_path_factory.mktemp("turns")
    (folder / "keys").write_text("heavy:kh\nlight:kl\n", encoding="utf-8")
    path = longwave_server.make_tiny_model(folder / "tiny.gguf", "context=65536")
    server = longwave_server.Server(path, "--api-key-file", str(folder / "keys"))

    def ask(key, schema):
        return server.request("POST", CHAT, asking(schema), {"Authorization": f"Bearer {key}"})[0]

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        heavy = [pool.submit(ask, "kh", automaton(TOO_MANY, f"z{i}x")) for i in range(6)]
        assert ask("kl", {"const": "light"}) == 200
        assert not all(one.done() for one in heavy)
        assert {one.result() for one in heavy} == {400}
    assert server.stop() == 0


def test_compiling_ends_with_the_time_of_the_request(server):
    """A thousandth of a second is over before that is compiled, on any machine."""
    status, error = server.error(CHAT, {**asking(automaton(12, "y")), "timeout_s": 0.001})
    assert status == 504 and error["code"] == "timeout"


def test_tools_have_one_limit_together(server):
    """Each of them would take less."""
    tools = [tool(f"f{i}", automaton(4, f"w{i}x")) for i in range(TOO_MANY // 8)]
    status, error = server.error(CHAT, {"messages": ASK, "tools": tools, "tool_choice": "required"})
    assert status == 400 and error["code"] == "too_large", error
    assert server.post(CHAT, {"messages": ASK, "tools": tools[:1], "tool_choice": "required", "max_tokens": 4})[0] == 200


LENIENT = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}


@pytest.mark.parametrize("stream", (False, True))
def test_a_tool_whose_schema_is_not_followed_is_told(server, stream):
    body = {"messages": ASK, "max_tokens": 4, "tools": [tool("fine", {"type": "object"}), tool("odd", LENIENT)]}
    for _ in range(2):  # compiled, and kept
        about = server.frames(CHAT, body)[-1]["longwave"] if stream else server.post(CHAT, body)[1]["longwave"]
        assert [one["name"] for one in about["tools_unconstrained"]] == ["odd"]
        assert "uniqueItems" in about["tools_unconstrained"][0]["reason"]
    body["tools"].pop()
    assert "tools_unconstrained" not in server.post(CHAT, body)[1]["longwave"]


@pytest.mark.parametrize("more, choice", (({"strict": True}, "auto"), ({}, "required"),
                                          ({}, {"type": "function", "function": {"name": "odd"}})))
def test_where_it_has_to_be_followed_it_is_refused(server, more, choice):
    status, error = server.error(CHAT, {"messages": ASK, "tool_choice": choice, "tools": [tool("odd", LENIENT, **more)]})
    assert status == 400 and error["code"] == "invalid_schema" and error["param"] == "tools[0].function.parameters"
    assert more or "uniqueItems" in error["message"]


@pytest.mark.parametrize("kind", ("string", ["object", "null"], None, 3, []))
def test_parameters_are_an_object(server, kind):
    status, error = server.error(CHAT, {"messages": ASK, "tools": [tool("f", {"type": kind})]})
    assert status == 400 and error["param"] == "tools[0].function.parameters.type"


def test_arguments_are_an_object_whatever_else_a_schema_allows(server):
    body = {"messages": ASK, "tool_choice": "required", "max_tokens": 200, "temperature": 2}
    status, error = server.error(CHAT, {**body, "tools": [tool("f", {"anyOf": [{"type": "string"}]})]})
    assert status == 400 and "no object is valid" in error["message"]
    kinds = {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": False}]}
    for seed in range(8):
        status, answer = server.post(CHAT, {**body, "seed": seed, "tools": [tool("f", kinds)], "parallel_tool_calls": False})
        assert status == 200 and answer["choices"][0]["finish_reason"] == "tool_calls"
        assert json.loads(answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]) in ({}, {"a": 1})


@pytest.mark.parametrize("field, value", (("grammar", 'root ::= "a"'), ("regex", "a"), ("choice", ["a"]), ("guided_json", {})))
def test_nothing_is_left_out_where_calls_have_to_come(server, field, value):
    body = {"messages": ASK, "tools": [tool("f", {"type": "object"})], "max_tokens": 4, field: value}
    status, error = server.error(CHAT, {**body, "tool_choice": "required"})
    assert status == 400 and error["param"] == field and "tool_choice" in error["message"]
    assert server.post(CHAT, body)[0] == 200


@pytest.mark.parametrize("stream", (False, True))
def test_a_text_that_can_be_read_in_too_many_ways_is_cut(smollm2, stream):
    """Not an error after a 200: what was written, and word of why it ends."""
    body = {"messages": ASK, "max_tokens": 300, "min_tokens": 300, "temperature": 2, "seed": 5,
            "grammar": "root ::= s{3}\ns ::= [a-z ]{1,40} t?\nt ::= [a-y ]{1,40} s? | [b-z ]{1,40} s?"}
    if stream:
        frames = smollm2.frames(CHAT, body)
        choice, about = frames[-1]["choices"][0], frames[-1]["longwave"]
        text = "".join(frame["choices"][0]["delta"].get("content") or "" for frame in frames)
    else:
        status, answer = smollm2.post(CHAT, body)
        assert status == 200
        choice, about, text = answer["choices"][0], answer["longwave"], answer["choices"][0]["message"]["content"]
    assert choice["finish_reason"] == "length" and about["cut_by_grammar"] == [0]
    assert re.fullmatch("[a-z ]{3,300}", text)


def test_end_tokens_within_a_grammar(server):
    """An answer does not end where the grammar goes on, whoever wrote that token there."""
    end = server.post("/tokenize", {"content": "<|im_end|>", "parse_special": True})[1]["tokens"]
    assert len(end) == 1
    status, error = server.error(CHAT, {"messages": ASK, "grammar": f'root ::= <[{end[0]}]> "ab"'})
    assert status == 400 and error["code"] == "invalid_schema" and error["param"] == "grammar"
    status, answer = server.post(CHAT, {"messages": ASK, "grammar": f'root ::= "ab" <[{end[0]}]>'})
    assert status == 200 and answer["choices"][0]["message"]["content"] == "ab" and answer["choices"][0]["finish_reason"] == "stop"
