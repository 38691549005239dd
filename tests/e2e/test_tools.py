# SPDX-License-Identifier: Apache-2.0
"""Tools that the model sees and may not call; conversations in which tools were called."""
import json

import longwave_server

CHAT = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
TURNS = [
    {"role": "user", "content": "How is the weather?"},
    {"role": "assistant", "content": None,
     "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"in\": \"Oslo\"}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
]


def test_the_template_shows_tools_and_calls(tiny):
    body = {"messages": TURNS, "tools": [TOOL], "tool_choice": "none"}
    call = '{"name": "weather", "arguments": {"in": "Oslo"}}'
    turns = ("<|im_start|>user\nHow is the weather?<|im_end|>\n"
             f"<|im_start|>assistant\n<call>{call}</call><|im_end|>\n<|im_start|>tool\nrain<|im_end|>\n")
    status, answer = tiny.post("/apply-template", {**body, "add_generation_prompt": False})
    system, turns_then = answer["prompt"].split("<|im_end|>\n", 1)
    assert status == 200 and turns_then == turns
    assert json.loads(system.removeprefix("<|im_start|>system\n")) == [TOOL]
    assert tiny.post("/apply-template", {"messages": TURNS, "add_generation_prompt": False})[1] == {"prompt": turns}
    assert tiny.post(CHAT, {**body, "max_tokens": 2})[0] == 200


def test_choices_that_make_no_sense(smollm2):
    for fields, param in (({"tool_choice": "required"}, "tool_choice"),
                          ({"tools": [TOOL], "tool_choice": "often"}, "tool_choice"),
                          ({"tools": [TOOL, TOOL]}, "tools[1].function.name"),
                          ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "time"}}},
                           "tool_choice.function.name")):
        status, error = smollm2.error(CHAT, {"messages": TURNS, **fields})
        assert status == 400 and error["code"] == "invalid_value" and error["param"] == param
    for choice in ("none", "auto"):
        assert smollm2.post(CHAT, {"messages": TURNS[:1], "tools": [TOOL], "tool_choice": choice, "max_tokens": 2})[0] == 200
