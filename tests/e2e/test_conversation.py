# SPDX-License-Identifier: Apache-2.0
"""Conversations of 20 turns, sampled, through the official client: what was said before is never computed again."""
import itertools
import json

import openai
import pytest

import longwave_server

N_TURNS, PART_CACHED = 20, 0.99
SYSTEM = {"role": "system", "content": "You help people who travel. " * 40}
TOOLS = [{"type": "function", "function": {
    "name": name, "description": f"Finds the {name} of a town.",
    "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}}}
    for name in ("weather", "hotels", "trains")]
TEXT_ONLY = {"0": -100, "1": -100}  # control tokens within an answer stand for no text
TOWNS = ["Oslo", "Zürich", "København", "東京", "São Paulo", "Kraków"]


def call_of(turn):
    """What a client's own code has put between two answers: a call and its result."""
    name, town = TOOLS[turn % 3]["function"]["name"], TOWNS[turn % 6]
    arguments = json.dumps({"town": town}, ensure_ascii=turn % 2 == 0)
    return [{"role": "assistant", "content": None, "tool_calls": [
                {"id": f"call_{turn}", "type": "function", "function": {"name": name, "arguments": arguments}}]},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": f"{name} of {town}: {turn * 7} ☔\n"}]


class Conversation:
    def __init__(self, server, stream=False, **fields):
        self.client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=300)
        self.model = self.client.models.list().data[0].id
        self.stream, self.fields = stream, fields
        self.messages, self.n_earlier = [SYSTEM], 0

    def answer(self, seed):
        """(text, usage)"""
        request = {"model": self.model, "messages": self.messages, "seed": seed, **self.fields}
        if not self.stream:
            answer = self.client.chat.completions.create(**request)
            return answer.choices[0].message.content, answer.usage
        text = ""
        for chunk in self.client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **request):
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
        return text, chunk.usage

    def say(self, turn, between=()):
        self.messages += [{"role": "user", "content": f"{turn}. What of {TOWNS[turn % 6]}?"}, *between]
        text, usage = self.answer(turn)
        cached = usage.prompt_tokens_details.cached_tokens
        assert cached >= PART_CACHED * self.n_earlier, f"turn {turn}: {cached} of {self.n_earlier} tokens"
        self.n_earlier = usage.total_tokens
        self.messages.append({"role": "assistant", "content": text})


@pytest.fixture(scope="module", params=["on", "exact"])
def cache(request):
    return request.param


def test_with_tools(tiny_path, cache):
    server = longwave_server.Server(tiny_path, "--cache", cache)
    try:
        talk = Conversation(server, tools=TOOLS, tool_choice="none", temperature=1.2, max_tokens=20, logit_bias=TEXT_ONLY)
        for turn in range(N_TURNS):
            talk.say(turn, call_of(turn) if turn % 3 else ())
        assert talk.n_earlier > 2500
    finally:
        assert server.stop() == 0


def test_plain_chat(cache):
    server = longwave_server.Server(longwave_server.MODEL, "--cache", cache, "--ctx", "4096")
    try:
        talk = Conversation(server, temperature=0.9, max_tokens=24)
        for turn in range(N_TURNS):
            talk.say(turn)
    finally:
        assert server.stop() == 0


def test_however_an_answer_ends(tiny_path):
    """By length (within a character too), by a stop string, by an end token."""
    server = longwave_server.Server(tiny_path)
    try:
        for stop, end_bias, stream in itertools.product((None, ["e"]), (0, 6), (False, True)):
            salt = {"cache_salt": f"{stop} {end_bias} {stream}"}
            talk = Conversation(server, stream, temperature=1.5, max_tokens=30, stop=stop,
                                logit_bias={**TEXT_ONLY, "2": end_bias}, extra_body=salt)
            for turn in range(6):
                talk.say(turn)
    finally:
        assert server.stop() == 0
