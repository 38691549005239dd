# SPDX-License-Identifier: Apache-2.0
"""Answers that are JSON by a schema: through the openai package with pydantic, by the raw fields, and what is refused."""
import enum
import json
from typing import Literal, Optional, Union

import openai
import pydantic
import pytest

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ASK = [{"role": "user", "content": "Tell me about a city that you like, as JSON."}]


class Kind(enum.Enum):
    CAPITAL = "capital"
    PORT = "port"


class Place(pydantic.BaseModel):
    lat: float = pydantic.Field(ge=-90, le=90)
    lon: float = pydantic.Field(ge=-180, le=180)


class Street(pydantic.BaseModel):
    type: Literal["street"]
    name: str = pydantic.Field(max_length=20)


class Park(pydantic.BaseModel):
    type: Literal["park"]
    area: int = pydantic.Field(ge=1, le=500)


class City(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=1, max_length=30, pattern="^[A-Z][a-z ]*$")
    kind: Kind
    place: Place
    founded: Optional[int] = pydantic.Field(ge=1, le=2026)
    sights: list[Union[Street, Park]] = pydantic.Field(max_length=3)


def test_parse_with_pydantic(client):
    for seed, temperature in ((1, 0), (2, 1.5), (3, 2)):
        answer = client.chat.completions.parse(model="smollm2", messages=ASK, response_format=City, seed=seed,
                                               temperature=temperature, max_tokens=400)
        assert answer.choices[0].finish_reason == "stop"
        city = answer.choices[0].message.parsed
        assert isinstance(city, City)
        # strict mode: the order of the class
        assert list(json.loads(answer.choices[0].message.content)) == ["name", "kind", "place", "founded", "sights"]


def test_a_stream_is_parsed_as_it_comes(client):
    kwargs = {"model": "smollm2", "messages": ASK, "response_format": City, "seed": 5, "temperature": 1, "max_tokens": 400}
    whole = client.chat.completions.parse(**kwargs).choices[0].message.content
    with client.chat.completions.stream(**kwargs) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == whole and final.choices[0].message.parsed == City.model_validate_json(whole)


class Tree(pydantic.BaseModel):
    value: int = pydantic.Field(ge=0, le=9)
    children: list["Tree"] = pydantic.Field(max_length=2)


def test_what_is_cut_off_is_not_parsed(client):
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model="smollm2", messages=ASK, response_format=Tree, max_tokens=3)


def json_by(server, fields, path=CHAT):
    body = {"messages": ASK} if path == CHAT else {"prompt": "A city as JSON: "}
    status, answer = server.post(path, {**body, "max_tokens": 300, "temperature": 1, "seed": 7, **fields})
    assert status == 200, answer
    choice = answer["choices"][0]
    return choice["finish_reason"], choice["message"]["content"] if path == CHAT else choice["text"]


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 3}}, "required": ["n"],
          "additionalProperties": False}


@pytest.mark.parametrize("path", (CHAT, TEXT))
@pytest.mark.parametrize("fields", (
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
    {"response_format": {"type": "json_object", "schema": SCHEMA}},
    {"guided_json": SCHEMA}, {"guided_json": json.dumps(SCHEMA)}, {"structured_outputs": {"json": SCHEMA}},
    {"json_schema": SCHEMA}))
def test_fields_that_carry_a_schema(smollm2, path, fields):
    reason, text = json_by(smollm2, fields, path)
    assert reason == "stop" and json.loads(text)["n"] in (1, 2, 3) and len(json.loads(text)) == 1


@pytest.mark.parametrize("path", (CHAT, TEXT))
def test_any_object(tiny, path):
    """Of random weights at temperature 2, which close what is open soon: every answer comes to its end and is one object."""
    likely = {tiny.post("/tokenize", {"content": close})[1]["tokens"][0]: 8 for close in '"]}'}
    members = 0
    for seed in range(20):
        reason, text = json_by(tiny, {"response_format": {"type": "json_object"}, "temperature": 2, "seed": seed, "logit_bias": likely,
                                      "max_tokens": 1000}, path)
        assert reason == "stop" and isinstance(json.loads(text), dict), text
        members += len(json.loads(text))
    assert members > 2  # it is not the empty one each time


def test_any_object_by_a_model_that_writes_prose(smollm2):
    """Greedy, it would begin with a sentence; cut off, what is there is the beginning of an object."""
    reason, text = json_by(smollm2, {"response_format": {"type": "json_object"}, "temperature": 0, "max_tokens": 60})
    assert text.startswith("{")
    if reason == "stop":
        assert isinstance(json.loads(text), dict)
    else:
        with pytest.raises(json.JSONDecodeError) as error:
            json.loads(text)
        rest = text[error.value.pos:]  # what is missing begins at the end, or a string or number is cut
        assert not rest.strip() or rest.startswith('"') or error.value.pos >= len(text) - 1, (text, error.value)


def test_end_tokens_wait_for_the_end(smollm2):
    """An answer of the tiny range of lengths, whatever its model would say."""
    for seed in range(5):
        reason, text = json_by(smollm2, {"guided_json": {"type": "string", "minLength": 5, "maxLength": 6}, "seed": seed, "temperature": 2})
        assert reason == "stop" and 5 <= len(json.loads(text)) <= 6


@pytest.mark.parametrize("schema, code, words", (
    ({"type": "array", "uniqueItems": True}, "invalid_schema", "'uniqueItems' is not supported"),
    ({"properties": {"a": {"items": {"contains": {}}}}}, "invalid_schema", "#/properties/a/items"),
    ({"$ref": "https://example.com/schema"}, "invalid_schema", "$ref"),
    ({"type": "string", "pattern": "a(?!b)"}, "invalid_schema", "lookahead"),
    ({"type": "string", "format": "iri"}, "invalid_schema", "iri"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "invalid_schema", "no value"),
    ({"type": "integer", "minimum": "3"}, "invalid_schema", "'minimum'"),
    ({"type": "string", "pattern": "(a|b|c){3000}"}, "too_large", "")))
def test_what_cannot_be_done_is_refused(tiny, schema, code, words):
    status, error = tiny.error(CHAT, {"messages": ASK, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}})
    assert status == 400 and error["code"] == code and error["param"] == "response_format.json_schema.schema"
    assert words in error["message"]


def test_strict_wants_closed_objects(tiny):
    for schema, words in (({"type": "object", "properties": {"a": {}}, "required": ["a"]}, "additionalProperties"),
                          ({**SCHEMA, "required": []}, "required"), ({"type": "array"}, "'object'")):
        asked = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
        status, error = tiny.error(CHAT, {"messages": ASK, "response_format": asked})
        assert status == 400 and error["code"] == "invalid_schema" and words in error["message"]
