# SPDX-License-Identifier: Apache-2.0
"""Reasoning: its budget, grammars and calls behind it, and turns that come back with it or without."""
import json

import openai
import pytest

import longwave_server

TEXT_ONLY = {"0": -100, "1": -100}  # control tokens within an answer stand for no text
SCHEMA = {"type": "object", "required": ["a"], "additionalProperties": False, "properties": {
    "a": {"type": "integer", "minimum": 0, "maximum": 99}}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}


@pytest.fixture(scope="module")
def talkers(tmp_path_factory):
    """By template: one that begins the reasoning itself, and one that leaves that to the model."""
    servers, clients = [], {}
    for chat in ("opens", "hermes"):
        path = longwave_server.make_tiny_model(tmp_path_factory.mktemp(chat) / "tiny.gguf", "context=4096", f"chat={chat}")
        servers.append(longwave_server.Server(path, "--alias", "tiny"))
        clients[chat] = openai.OpenAI(base_url=servers[-1].url, api_key="none", max_retries=0, timeout=300)
        clients[chat].opens = chat == "opens"
    yield clients
    assert [server.stop() for server in servers] == [0, 0]


@pytest.fixture(params=["opens", "hermes"])
def talker(request, talkers):
    return talkers[request.param]


@pytest.fixture
def opener(talkers):
    return talkers["opens"]


def ask(client, messages, stream=False, budget=12, **fields):
    """(content, reasoning, calls, finish_reason, usage)"""
    body = {"model": "tiny", "messages": messages, "max_tokens": 60, "logit_bias": TEXT_ONLY,
            "extra_body": {"reasoning_budget": budget, **fields.pop("extra_body", {})}, **fields}
    if not stream:
        answer = client.chat.completions.create(**body)
        message = answer.choices[0].message
        calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or []]
        return (message.content or "", getattr(message, "reasoning_content", "") or "", calls,
                answer.choices[0].finish_reason, answer.usage)
    content = reasoning = ""
    calls, finish, usage = [], None, None
    for chunk in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **body):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", "") or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or []:
                if call.id:
                    calls.append([call.function.name, ""])
                calls[call.index][1] += call.function.arguments or ""
    return content, reasoning, [tuple(call) for call in calls], finish, usage


USER = {"role": "user", "content": "hi"}


def test_a_budget_ends_the_reasoning(opener):
    for budget in (0, 1, 20):
        for stream in (False, True):
            content, reasoning, _, finish, usage = ask(opener, [USER], stream, budget, seed=3,
                                                       extra_body={"ignore_eos": True})
            n = usage.completion_tokens_details.reasoning_tokens
            assert budget <= n <= budget + 16 and content and finish == "length"
            assert not reasoning or budget


def test_no_budget_is_no_end(opener):
    content, reasoning, _, finish, usage = ask(opener, [USER], budget=-1, extra_body={"ignore_eos": True})
    assert not content and reasoning and finish == "length"
    assert usage.completion_tokens_details.reasoning_tokens == usage.completion_tokens == 60


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_begins_behind_the_reasoning(talker, stream):
    form = {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": SCHEMA}}
    for seed in range(6):
        content, reasoning, _, finish, _ = ask(talker, [USER], stream, seed=seed, response_format=form, max_tokens=200)
        assert finish == "stop" and set(json.loads(content)) == {"a"}
        assert "</think>" not in reasoning and (reasoning or not talker.opens)


@pytest.mark.parametrize("stream", [False, True])
def test_calls_come_behind_the_reasoning(talker, stream):
    for seed in range(6):
        content, _, calls, finish, _ = ask(talker, [USER], stream, seed=seed, tools=[TOOL], tool_choice="required",
                                           parallel_tool_calls=False, max_tokens=200)
        assert finish == "tool_calls" and not content and [name for name, _ in calls] == ["look"]
        assert set(json.loads(calls[0][1])) == {"a"}


def turn_of(answer, told):
    content, reasoning, calls, *_ = answer
    turn = {"role": "assistant", "content": content or None}
    if calls:
        turn["tool_calls"] = [{"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
                              for i, (name, arguments) in enumerate(calls)]
    if told and reasoning:
        turn["reasoning_content"] = reasoning
    return turn


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("stream", [False, True])
def test_turns_are_not_computed_again(talker, told, stream):
    """Answers and calls by turns; the client sends the reasoning back, or does not."""
    messages, n_earlier = [{"role": "system", "content": "You help. " * 60}], 0
    salt = {"cache_salt": f"{told} {stream}"}
    for turn in range(8):
        messages.append({"role": "user", "content": f"{turn}. And now?"})
        choice = "required" if turn % 2 else "none"
        answer = ask(talker, messages, stream, seed=turn, tools=[TOOL], tool_choice=choice, temperature=1.0,
                     parallel_tool_calls=False, extra_body=salt, max_tokens=300 if turn % 2 else 60)
        assert answer[3] == "tool_calls" or turn % 2 == 0
        usage = answer[4]
        cached = usage.prompt_tokens_details.cached_tokens
        assert cached >= 0.99 * n_earlier, f"turn {turn}: {cached} of {n_earlier} tokens"
        n_earlier = usage.total_tokens
        messages.append(turn_of(answer, told))
        if answer[2]:
            messages.append({"role": "tool", "tool_call_id": "call_0", "content": "rain"})
