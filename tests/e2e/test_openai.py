# SPDX-License-Identifier: Apache-2.0
"""The official client library against a real model."""
import openai
import pytest

import longwave_server

# With the system message of its own template this model answers in French song titles, whoever runs it.
FRANCE = [{"role": "system", "content": "You are a helpful assistant."},
          {"role": "user", "content": "What is the capital of France?"}]


def test_chat(client):
    answer = client.chat.completions.create(model="smollm2", messages=FRANCE, temperature=0, max_tokens=40)
    choice = answer.choices[0]
    assert "Paris" in choice.message.content
    assert choice.message.role == "assistant" and choice.finish_reason in ("stop", "length")
    assert answer.object == "chat.completion" and answer.model == "smollm2" and answer.id.startswith("chatcmpl-")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 0 <= answer.usage.prompt_tokens_details.cached_tokens < answer.usage.prompt_tokens
    assert answer.model_extra["longwave"]["timings"]["decode_tokens_per_second"] > 0


def test_streaming_chat_equals_the_whole_answer(client):
    fields = {"model": "smollm2", "messages": FRANCE, "temperature": 0, "max_tokens": 40}
    whole = client.chat.completions.create(**fields)
    chunks = list(client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content == ""
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    choices = [chunk.choices[0] for chunk in chunks[:-1]]
    assert "".join(choice.delta.content or "" for choice in choices) == whole.choices[0].message.content
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == [whole.choices[0].finish_reason]
    assert choices[-1].finish_reason and all(chunk.usage is None for chunk in chunks[:-1])


def test_completions(client):
    fields = {"model": "smollm2", "prompt": "The capital of France is", "temperature": 0}
    whole = client.completions.create(**fields)
    assert "Paris" in whole.choices[0].text
    assert whole.object == "text_completion" and whole.id.startswith("cmpl-")
    assert whole.usage.completion_tokens == 16
    chunks = list(client.completions.create(**fields, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text


def test_several_prompts_and_choices(client):
    answer = client.completions.create(model="smollm2", prompt=["One, two,", [504, 3575]], n=2, temperature=0, max_tokens=4,
                                       echo=True)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.choices[0].text == answer.choices[1].text and answer.choices[0].text.startswith("One, two,")
    assert answer.choices[2].text == answer.choices[3].text


def test_seeds_repeat_and_differ(client):
    def text(seed):
        answer = client.chat.completions.create(model="smollm2", messages=FRANCE, temperature=1.2, max_tokens=24, seed=seed)
        return answer.choices[0].message.content

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(1, 6)}) > 1


@pytest.mark.parametrize("fields", [
    {"mirostat": 1, "mirostat_tau": 3}, {"mirostat": 2}, {"typical_p": 0.5}, {"top_n_sigma": 1},
    {"xtc_probability": 0.5, "xtc_threshold": 0.1}, {"dynatemp_range": 0.5}, {"dry_multiplier": 0.8, "dry_penalty_last_n": -1},
    {"repeat_penalty": 1.2, "repeat_last_n": 16},
])
def test_samplers_repeat_by_seed(client, fields):
    def text():
        answer = client.completions.create(model="smollm2", prompt="One day", temperature=1, max_tokens=24, seed=5,
                                           extra_body=fields)
        return answer.choices[0].text

    assert text() == text()


def test_dry_ends_a_loop(client):
    def text(**more):
        answer = client.completions.create(model="smollm2", prompt="The cat sat. " * 5 + "The cat", temperature=0,
                                           max_tokens=8, extra_body=more)
        return answer.choices[0].text

    assert text().startswith(" sat. The cat sat.")
    assert not text(dry_multiplier=5).startswith(" sat")
    assert text(dry_multiplier=5, dry_sequence_breakers=["cat"]).startswith(" sat")


def test_content_parts(client):
    parts = [FRANCE[0], {"role": "user", "content": [{"type": "text", "text": FRANCE[1]["content"]}]}]
    fields = {"model": "smollm2", "temperature": 0, "max_tokens": 8}
    assert (client.chat.completions.create(messages=parts, **fields).choices[0].message.content ==
            client.chat.completions.create(messages=FRANCE, **fields).choices[0].message.content)


def test_models(client):
    models = client.models.list().data
    assert [model.id for model in models] == ["smollm2", "second-name"]
    model = client.models.retrieve("second-name")
    assert model.owned_by == "longwave" and model.model_extra["longwave"]["max_model_len"] == 8192
    assert model.model_extra["longwave"]["architecture"] == "llama"


@pytest.mark.parametrize("fields, param", [
    ({"temperature": 3}, "temperature"),
    ({"extra_body": {"top_k": -7}}, "top_k"),
    ({"extra_body": {"mirostat": 3}}, "mirostat"),
    ({"extra_body": {"typical_p": 2}}, "typical_p"),
    ({"extra_body": {"xtc_probability": -0.5}}, "xtc_probability"),
    ({"extra_body": {"dry_sequence_breakers": ["a", ""]}}, "dry_sequence_breakers[1]"),
    ({"extra_body": {"dynatemp_range": "wide"}}, "dynatemp_range"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"stop": [""]}, "stop[0]"),
    ({"logit_bias": {"99999": 1}}, "logit_bias"),
    ({"extra_body": {"stop_token_ids": [49152]}}, "stop_token_ids[0]"),
    ({"tools": [{"type": "function", "function": {"name": "f g"}}]}, "tools[0].function.name"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"max_tokens": 9000}, "max_tokens"),
])
def test_bad_requests(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{"model": "smollm2", "messages": FRANCE, **fields})
    assert caught.value.param == param and caught.value.type == "invalid_request_error"


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="other", messages=FRANCE)
    assert caught.value.code == "model_not_found" and caught.value.param == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_keys(tiny_path):
    server = longwave_server.Server(tiny_path, "--alias", "tiny", "--api-key", "right")
    try:
        with pytest.raises(openai.AuthenticationError) as caught:
            openai.OpenAI(base_url=server.url, api_key="wrong", max_retries=0).models.list()
        assert caught.value.code == "invalid_api_key"
        assert openai.OpenAI(base_url=server.url, api_key="right", max_retries=0).models.list().data[0].id == "tiny"
        assert server.status("/health") == 200 and server.status("/metrics") == 401
    finally:
        assert server.stop() == 0


def test_a_full_queue_is_a_rate_limit(tiny_path):
    server = longwave_server.Server(tiny_path, "--alias", "tiny", "--max-queue", "1", "--max-batch", "1")
    try:
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)
        body = {"prompt": "the", "max_tokens": 4000, "ignore_eos": True, "stream": True}
        held = [server.open_post("/v1/completions", body)]
        server.wait_metric("vllm:num_requests_running", lambda value: value == 1)
        held.append(server.open_post("/v1/completions", body))
        server.wait_metric("longwave_generations_open", lambda value: value == 2)
        with pytest.raises(openai.RateLimitError) as caught:
            client.completions.create(model="tiny", prompt="the")
        assert caught.value.code == "queue_full" and int(caught.value.response.headers["Retry-After"]) > 0
        for s in held:
            s.close()
    finally:
        assert server.stop() == 0


def test_no_tokens_are_a_warm_up(client):
    turns = [{"role": "user", "content": "Which is the largest of the planets? " * 8}]
    cold = client.chat.completions.create(model="smollm2", messages=turns, max_tokens=0)
    assert cold.choices[0].message.content == "" and cold.choices[0].finish_reason == "length"
    assert cold.usage.completion_tokens == 0 and cold.usage.prompt_tokens_details.cached_tokens < 50
    warm = client.chat.completions.create(model="smollm2", messages=turns, max_completion_tokens=1)
    assert warm.usage.prompt_tokens_details.cached_tokens == warm.usage.prompt_tokens - 1
    answer = client.completions.create(model="smollm2", prompt=["One", "Two"], n=2, max_tokens=0, echo=True)
    assert [choice.text for choice in answer.choices] == ["One", "One", "Two", "Two"]
    chunks = list(client.chat.completions.create(model="smollm2", messages=turns, max_tokens=0, stream=True))
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, "length"]


def test_fields_without_effect_are_taken(client):
    fields = {"model": "smollm2", "messages": FRANCE, "temperature": 0, "max_tokens": 4}
    plain = client.chat.completions.create(**fields)
    full = client.chat.completions.create(
        **fields, user="u", safety_identifier="s", prompt_cache_key="k", service_tier="auto", metadata={"a": "b"}, store=False,
        parallel_tool_calls=True, prediction={"type": "content", "content": "Paris"}, modalities=["text"],
        response_format={"type": "text"}, tools=[], extra_body={"verbosity": "low"})
    assert full.choices == plain.choices
    assert full.system_fingerprint == plain.system_fingerprint and full.system_fingerprint.startswith("fp_")


def test_logprobs_of_parts_of_characters(client):
    """An emoji of several tokens: their bytes join to the text."""
    answer = client.chat.completions.create(model="smollm2", temperature=0, max_tokens=6, logprobs=True, top_logprobs=2,
                                            messages=[{"role": "user", "content": "Answer with the emoji \U0001f600"}])
    tokens = answer.choices[0].logprobs.content
    assert b"".join(bytes(token.bytes) for token in tokens).decode() == answer.choices[0].message.content
    assert any(token.token == "".join(f"\\x{byte:02x}" for byte in token.bytes) for token in tokens)
    text = "Write: \U0001f600\u00e9"
    choice = client.completions.create(model="smollm2", prompt=text, temperature=0, max_tokens=2, logprobs=0, echo=True).choices[0]
    assert choice.text.startswith(text) and len(choice.logprobs.text_offset) == len(choice.logprobs.tokens)
    assert choice.logprobs.text_offset[0] == 0 and sorted(choice.logprobs.text_offset) == choice.logprobs.text_offset
    assert choice.logprobs.top_logprobs[0] is None and choice.logprobs.token_logprobs[0] is None
