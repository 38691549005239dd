# SPDX-License-Identifier: Apache-2.0
"""Answers of a given structure, through the clients that people use."""
import asyncio
from typing import Literal

import instructor
import litellm
import openai
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field


class City(BaseModel):
    name: str = Field(max_length=30)
    country: Literal["France", "Italy", "Spain"]
    inhabitants: int = Field(ge=0, le=100_000_000)


QUESTION = [{"role": "user", "content": "Describe the city of Paris as JSON with name, country and inhabitants."}]
FIELDS = {"temperature": 0, "max_tokens": 120}


def test_openai_parse(client):
    answer = client.chat.completions.parse(model="smollm2", messages=QUESTION, response_format=City, **FIELDS)
    assert isinstance(answer.choices[0].message.parsed, City)


def test_openai_parse_async(server):
    async def ask():
        async with openai.AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
            return await client.chat.completions.parse(model="smollm2", messages=QUESTION, response_format=City, **FIELDS)

    assert isinstance(asyncio.run(ask()).choices[0].message.parsed, City)


def test_openai_stream_parses(client):
    with client.chat.completions.stream(model="smollm2", messages=QUESTION, response_format=City, **FIELDS) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, City)


def test_langchain(server):
    langchain = ChatOpenAI(base_url=server.url, api_key="none", model="smollm2", temperature=0, max_tokens=120, max_retries=0)
    assert isinstance(langchain.with_structured_output(City, method="json_schema").invoke(QUESTION), City)


def test_instructor(client):
    city = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA).chat.completions.create(
        model="smollm2", messages=QUESTION, response_model=City, max_retries=0, **FIELDS)
    assert isinstance(city, City)


def test_litellm(server):
    answer = litellm.completion(model="openai/smollm2", api_base=server.url, api_key="none", max_retries=0, messages=QUESTION,
                                response_format=City, **FIELDS)
    City.model_validate_json(answer.choices[0].message.content)
