# SPDX-License-Identifier: Apache-2.0
"""Calls of tools through the official client: a model of random weights can only write what the grammar lets it."""
import json

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
CHATS = ["calls", "hermes", "coder", "mistral", "llama", "pythonic", "gemma"]


@pytest.fixture(scope="module", params=CHATS)
def talker(request, tmp_path_factory):
    path = longwave_server.make_tiny_model(tmp_path_factory.mktemp("chat") / "tiny.gguf", "context=4096",
                                           f"chat={request.param}")
    server = longwave_server.Server(path, "--alias", "tiny")
    yield openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=300)
    assert server.stop() == 0


def check(call):
    arguments = json.loads(call.function.arguments)
    if call.function.name == "stop":
        assert arguments == {}
        return
    assert call.function.name == "weather" and call.type == "function" and call.id
    assert set(arguments) <= {"city", "days", "unit"} and {"city", "days"} <= set(arguments)
    assert isinstance(arguments["city"], str) and arguments["days"] in range(1, 10)
    assert arguments.get("unit", "C") in ("C", "F")


def ask(client, stream, **fields):
    """(message, finish_reason), a stream's joined by the client's own helper"""
    fields = {"model": "tiny", "messages": ASK, "tools": TOOLS, "max_tokens": 400,
              "extra_body": {"chat_template_kwargs": {"enable_thinking": False}}, **fields}
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


def test_auto_is_content_or_calls(talker):
    for seed in range(3):
        message, finish = ask(talker, False, seed=seed, temperature=1.0, max_tokens=40)
        assert message.content or message.tool_calls or finish == "stop"


def test_what_a_schema_cannot_say_is_refused(talker):
    tool = {"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}}}
    with pytest.raises(openai.BadRequestError) as caught:
        ask(talker, False, tools=[tool], tool_choice="required")
    assert caught.value.param == "tools[0].function.parameters" and caught.value.code == "invalid_schema"
    message, _ = ask(talker, False, tools=[tool], max_tokens=5)
    assert message.content is not None or message.tool_calls
    tool["function"]["strict"] = True
    with pytest.raises(openai.BadRequestError):
        ask(talker, False, tools=[tool])


def test_a_conversation_with_tools_goes_on(talker):
    """Call, result, answer: what was said is found in the cache."""
    message, finish = ask(talker, False, tool_choice={"type": "function", "function": {"name": "stop"}})
    assert finish == "tool_calls"
    messages = [*ASK, message.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "done"}]
    answer = talker.chat.completions.create(model="tiny", messages=messages, tools=TOOLS, tool_choice="none", max_tokens=5)
    assert answer.usage.completion_tokens and answer.usage.prompt_tokens_details.cached_tokens > 0
