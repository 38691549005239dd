# SPDX-License-Identifier: Apache-2.0
"""Calls of tools, through the clients that people use."""
import json
from typing import Literal

import instructor
import litellm
import pytest
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from test_structured import FIELDS, QUESTION, City

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place.", "strict": True,
    "parameters": {"type": "object", "additionalProperties": False, "required": ["place", "unit"], "properties": {
        "place": {"type": "string", "maxLength": 30}, "unit": {"enum": ["celsius", "fahrenheit"]}}}}}
ASK_WEATHER = [{"role": "user", "content": "What is the weather in Oslo? Use get_weather."}]


def check_call(name, arguments):
    assert name == "get_weather"
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert set(arguments) == {"place", "unit"} and arguments["unit"] in ("celsius", "fahrenheit")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_openai_tools(client, choice):
    fields = {"model": "smollm2", "messages": ASK_WEATHER, "tools": [WEATHER], "tool_choice": choice, **FIELDS}
    answer = client.chat.completions.create(**fields).choices[0]
    call = answer.message.tool_calls[0]
    check_call(call.function.name, call.function.arguments)
    with client.chat.completions.stream(**fields) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_completion().choices[0]
    assert streamed.message.tool_calls[0].function.arguments == call.function.arguments
    assert streamed.finish_reason == answer.finish_reason
    turns = [*ASK_WEATHER, answer.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    assert client.chat.completions.create(model="smollm2", messages=turns, tools=[WEATHER], tool_choice="none",
                                          **FIELDS).choices[0].message.content


@pytest.fixture(scope="module")
def langchain(server):
    return ChatOpenAI(base_url=server.url, api_key="none", model="smollm2", temperature=0, max_tokens=120, max_retries=0)


@tool
def get_weather(place: str, unit: Literal["celsius", "fahrenheit"]) -> str:
    """The weather of a place."""
    return f"rain in {place}, 5 {unit}"


def test_langchain_structured_output(langchain):
    assert isinstance(langchain.with_structured_output(City, method="function_calling").invoke(QUESTION), City)


def test_langchain_tools(langchain):
    answer = langchain.bind_tools([get_weather], tool_choice="required").invoke(ASK_WEATHER)
    call = answer.tool_calls[0]
    check_call(call["name"], call["args"])
    assert "rain in" in get_weather.invoke(call["args"])
    pieces = list(langchain.bind_tools([get_weather], tool_choice="get_weather").stream(ASK_WEATHER))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    check_call(whole.tool_calls[0]["name"], whole.tool_calls[0]["args"])


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT])
def test_instructor(client, mode):
    city = instructor.from_openai(client, mode=mode).chat.completions.create(
        model="smollm2", messages=QUESTION, response_model=City, max_retries=0, **FIELDS)
    assert isinstance(city, City)


@pytest.fixture(scope="module")
def llama_index(server):
    return OpenAILike(api_base=server.url, api_key="none", model="smollm2", is_chat_model=True, context_window=4096,
                      is_function_calling_model=True, temperature=0, max_tokens=120, max_retries=0)


def test_llama_index_tools(llama_index):
    weather = FunctionTool.from_defaults(fn=lambda place, unit: f"rain in {place}", name="get_weather",
                                         description="The weather of a place.", fn_schema=get_weather.args_schema)
    answer = llama_index.chat_with_tools([weather], chat_history=[ChatMessage(role="user", content=ASK_WEATHER[0]["content"])],
                                         tool_required=True)
    call = llama_index.get_tool_calls_from_response(answer)[0]
    check_call(call.tool_name, call.tool_kwargs)


def test_llama_index_structured(llama_index):
    message = [ChatMessage(role="user", content=QUESTION[0]["content"])]
    assert isinstance(llama_index.as_structured_llm(City).chat(message).raw, City)


def test_litellm(server):
    call = litellm.completion(model="openai/smollm2", api_base=server.url, api_key="none", max_retries=0, messages=ASK_WEATHER,
                              tools=[WEATHER], tool_choice="required", **FIELDS).choices[0].message.tool_calls[0]
    check_call(call.function.name, call.function.arguments)
