# SPDX-License-Identifier: Apache-2.0
"""What every client library does first: an answer, whole and as a stream."""
import asyncio

import litellm
import openai
import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from llama_index.core.base.llms.types import ChatMessage
from llama_index.llms.openai_like import OpenAILike

SYSTEM, QUESTION = "You are a helpful assistant.", "What is the capital of France?"
FRANCE = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
FIELDS = {"temperature": 0, "max_tokens": 24}


@pytest.fixture(scope="module")
def wanted(client):
    text = client.chat.completions.create(model="smollm2", messages=FRANCE, **FIELDS).choices[0].message.content
    assert "Paris" in text
    return text


def test_openai_async_streams_side_by_side(server, wanted):
    async def one(client):
        stream = await client.chat.completions.create(model="smollm2", messages=FRANCE, stream=True, **FIELDS)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def several():
        async with openai.AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
            return await asyncio.gather(*[one(client) for _ in range(4)])

    assert asyncio.run(several()) == [wanted] * 4


def test_openai_streaming_helper(client, wanted):
    with client.chat.completions.stream(model="smollm2", messages=FRANCE, **FIELDS) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    assert final.choices[0].message.content == wanted and final.choices[0].finish_reason in ("stop", "length")
    deltas = [event.delta for event in events if event.type == "content.delta"]
    assert "".join(deltas) == wanted and [event.content for event in events if event.type == "content.done"] == [wanted]


def test_openai_headers_and_retries(client):
    raw = client.chat.completions.with_raw_response.create(model="smollm2", messages=FRANCE, max_tokens=1,
                                                           extra_headers={"x-request-id": "from-the-client"})
    assert raw.headers["x-request-id"] == "from-the-client" and raw.parse()._request_id == "from-the-client"
    assert client.models.list()._request_id.startswith("req_")


def test_openai_logprobs(client):
    choice = client.chat.completions.create(model="smollm2", messages=FRANCE, logprobs=True, top_logprobs=3, **FIELDS).choices[0]
    assert "".join(token.token for token in choice.logprobs.content) == choice.message.content
    assert all(token.top_logprobs[0].logprob == token.logprob for token in choice.logprobs.content)


@pytest.fixture(scope="module")
def langchain(server):
    return ChatOpenAI(base_url=server.url, api_key="none", model="smollm2", temperature=0, max_tokens=24, max_retries=0)


def test_langchain(langchain, wanted):
    messages = [SystemMessage(SYSTEM), HumanMessage(QUESTION)]
    answer = langchain.invoke(messages)
    assert answer.content == wanted and answer.usage_metadata["output_tokens"] <= 24
    assert "".join(chunk.content for chunk in langchain.stream(messages)) == wanted
    assert [answer.content for answer in langchain.batch([messages] * 3)] == [wanted] * 3


@pytest.fixture(scope="module")
def llama_index(server):
    return OpenAILike(api_base=server.url, api_key="none", model="smollm2", is_chat_model=True, context_window=4096,
                      temperature=0, max_tokens=24, max_retries=0, is_function_calling_model=True)


def test_llama_index(llama_index, wanted):
    messages = [ChatMessage(role="system", content=SYSTEM), ChatMessage(role="user", content=QUESTION)]
    assert llama_index.chat(messages).message.content == wanted
    assert "".join(piece.delta or "" for piece in llama_index.stream_chat(messages)) == wanted
    assert isinstance(llama_index.complete(QUESTION).text, str)


def test_litellm(server, wanted):
    fields = {"model": "openai/smollm2", "api_base": server.url, "api_key": "none", "messages": FRANCE, "max_retries": 0, **FIELDS}
    assert litellm.completion(**fields).choices[0].message.content == wanted
    pieces = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(**fields, stream=True)]
    assert "".join(pieces) == wanted
    assert asyncio.run(litellm.acompletion(**fields)).choices[0].message.content == wanted
