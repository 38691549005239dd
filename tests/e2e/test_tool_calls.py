# SPDX-License-Identifier: Apache-2.0
"""Calls of tools through the official client: a model of random weights can only write what the grammar lets it."""
import json

import jsonschema
import openai
import pytest

import longwave_server

TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Weather of a city.", "parameters": {
        "type": "object", "required": ["city", "days"], "additionalProperties": False, "properties": {
            "city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "unit": {"type": "string", "enum": ["C", "F"]}}}}},
    {"type": "function", "function": {"name": "stop"}},
]
ASK = [{"role": "user", "content": "What of Oslo?"}]
CHATS = ["calls", "hermes", "coder", "glm", "kimi", "deepseek", "deepseek31", "channels", "mistral", "llama", "pythonic", "gemma"]
# What a call's form may find hard: values that read as others, texts with marks in them, nested objects, any value.
ORDER = {"type": "object", "required": ["item", "count"], "additionalProperties": False, "properties": {
    "item": {"type": "string", "pattern": "^[a-z<>/]{1,6}$"}, "count": {"type": ["integer", "string"], "maxLength": 3, "maximum": 99, "minimum": 0},
    "gift": {"enum": [True, None, "true", "none"]}, "to": {"anyOf": [{"type": "null"}, {"type": "object", "required": ["zip"], "properties": {
        "zip": {"type": "string", "minLength": 2, "maxLength": 4}, "flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}},
        "additionalProperties": False}]}}}
ORDERS = [{"type": "function", "function": {"name": "order", "parameters": ORDER}}]


@pytest.fixture(scope="module", params=CHATS)
def talker(request, tmp_path_factory):
    path = longwave_server.make_tiny_model(tmp_path_factory.mktemp("chat") / "tiny.gguf", "context=4096",
                                           f"chat={request.param}")
    server = longwave_server.Server(path, "--alias", "tiny")
    yield openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=300)
    assert server.stop() == 0


def check(call, tools=TOOLS):
    """Its arguments are valid by the schema of the tool that it calls."""
    assert call.type == "function" and call.id
    function = {tool["function"]["name"]: tool["function"] for tool in tools}[call.function.name]
    schema = function.get("parameters", {"type": "object", "additionalProperties": False})
    jsonschema.validate(json.loads(call.function.arguments), schema)


def ask(client, stream, **fields):
    """(message, finish_reason), a stream's joined by the client's own helper"""
    fields = {"model": "tiny", "messages": ASK, "tools": TOOLS, "max_tokens": 400,
              "extra_body": {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_budget": 0}, **fields}
    if not stream:
        choice = client.chat.completions.create(**fields).choices[0]
        return choice.message, choice.finish_reason
    try:
        with client.chat.completions.stream(**fields) as events:
            for _ in events:
                pass
            choice = events.get_final_completion().choices[0]
    except openai.LengthFinishReasonError as error:
        choice = error.completion.choices[0]
    return choice.message, choice.finish_reason


@pytest.mark.parametrize("stream", [False, True])
def test_required(talker, stream):
    n_ended = 0
    for seed in range(8):
        message, finish = ask(talker, stream, tool_choice="required", seed=seed, temperature=1.0)
        assert finish in ("tool_calls", "length")
        for call in (message.tool_calls or []) if finish == "tool_calls" else []:
            check(call)
        if finish == "tool_calls":
            assert message.tool_calls and not message.content
            n_ended += 1
    assert n_ended >= 4


@pytest.mark.parametrize("stream", [False, True])
def test_named_is_one_call(talker, stream):
    for name in ("weather", "stop"):
        choice = {"type": "function", "function": {"name": name}}
        message, finish = ask(talker, stream, tool_choice=choice, seed=7, temperature=1.0)
        assert finish == "tool_calls" and [call.function.name for call in message.tool_calls] == [name]
        check(message.tool_calls[0])


def test_streams_join_to_the_answer(talker):
    for seed in range(4):
        fields = {"tool_choice": "required", "seed": seed, "temperature": 1.0, "parallel_tool_calls": seed % 2 == 0}
        whole, finish = ask(talker, False, **fields)
        joined, joined_finish = ask(talker, True, **fields)
        assert finish == joined_finish and (whole.content or "") == (joined.content or "")
        calls = [[(call.function.name, call.function.arguments) for call in message.tool_calls or []]
                 for message in (whole, joined)]
        assert calls[0] == calls[1] and (seed % 2 == 0 or len(calls[0]) == 1)


@pytest.mark.parametrize("stream", [False, True])
def test_arguments_are_valid(talker, stream):
    """Random answers, as the daemon samples them."""
    n_ended = 0
    for seed in range(12):
        message, finish = ask(talker, stream, tools=ORDERS, tool_choice="required", seed=seed, temperature=1.5, parallel_tool_calls=False)
        assert finish in ("tool_calls", "length") and not message.content
        if finish == "tool_calls":
            assert len(message.tool_calls) == 1
            check(message.tool_calls[0], ORDERS)
            n_ended += 1
    assert n_ended >= 8


def test_auto_is_content_or_calls(talker, request):
    """What is cut off is cut within content or within a call whose name is one; what ends is whole."""
    for seed in range(4):
        message, finish = ask(talker, False, seed=seed, temperature=1.0, max_tokens=40)
        calls = message.tool_calls or []
        assert finish in ("length", "tool_calls", "stop")
        assert bool(calls) == (finish == "tool_calls") or finish == "length"
        assert all(call.function.name in ("weather", "stop") for call in calls)
        for call in calls if finish == "tool_calls" else []:
            check(call)
        if not calls and request.node.callspec.params["talker"] != "channels":  # 40 tokens of these may all be headers
            assert message.content


def test_what_a_schema_cannot_say_is_refused(talker):
    """Where it must be followed; elsewhere the tool is called with an object of any values."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "required": ["a"], "properties": {"a": {"type": "array", "uniqueItems": True}}}}}
    for fields in ({"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}}):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(talker, False, tools=[tool], **fields)
        assert caught.value.param == "tools[0].function.parameters" and caught.value.code == "invalid_schema"
        assert "uniqueItems" in str(caught.value) and "'f'" in str(caught.value)
    answer = talker.chat.completions.create(model="tiny", messages=ASK, tools=[tool], max_tokens=5)
    told = answer.model_extra["longwave"]["tools_unconstrained"]
    assert [one["name"] for one in told] == ["f"] and "uniqueItems" in told[0]["reason"]
    tool["function"]["strict"] = True
    with pytest.raises(openai.BadRequestError):
        ask(talker, False, tools=[tool])


BARE = {"pythonic", "gemma"}


def test_keys_that_a_form_cannot_tell(talker, request):
    chat = request.node.callspec.params["talker"]
    tool = {"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "required": ["first name"], "properties": {"first name": {"type": "integer", "maximum": 9, "minimum": 0}}}}}
    if chat in BARE:
        for choice in ("auto", "required"):
            with pytest.raises(openai.BadRequestError) as caught:
                ask(talker, False, tools=[tool], tool_choice=choice)
            assert caught.value.param == "tools[0].function.parameters" and caught.value.code == "unsupported"
            assert "'first name'" in str(caught.value) and "'f'" in str(caught.value)
    else:
        message, finish = ask(talker, False, tools=[tool], tool_choice="required", parallel_tool_calls=False)
        assert finish == "tool_calls"
        check(message.tool_calls[0], [tool])


def test_a_call_and_a_grammar_exclude_each_other(talker):
    for field, value in (("grammar", 'root ::= "a"'), ("regex", "a"), ("choice", ["a"]), ("guided_json", {"type": "object"})):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(talker, False, tool_choice="required", extra_body={field: value})
        assert caught.value.param == field and "tool_choice" in str(caught.value)
    message, finish = ask(talker, False, tool_choice={"type": "function", "function": {"name": "stop"}},
                          response_format={"type": "json_object"})
    assert finish == "tool_calls" and not message.content


def test_a_conversation_with_tools_goes_on(talker):
    """Call, result, answer: what was said is found in the cache."""
    message, finish = ask(talker, False, tool_choice={"type": "function", "function": {"name": "stop"}})
    assert finish == "tool_calls"
    messages = [*ASK, message.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "done"}]
    answer = talker.chat.completions.create(model="tiny", messages=messages, tools=TOOLS, tool_choice="none", max_tokens=5)
    assert answer.usage.completion_tokens and answer.usage.prompt_tokens_details.cached_tokens > 0
