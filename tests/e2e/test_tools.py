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
                          ({"tools": [{**TOOL, **{str(i): 0 for i in range(64)}}]}, "tools[0]"),
                          ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "time"}}},
                           "tool_choice.function.name")):
        status, error = smollm2.error(CHAT, {"messages": TURNS, **fields})
        assert status == 400 and error["code"] == "invalid_value" and error["param"] == param
    for choice in ("none", "auto"):
        assert smollm2.post(CHAT, {"messages": TURNS[:1], "tools": [TOOL], "tool_choice": choice, "max_tokens": 2})[0] == 200


def test_templates_without_tools_get_them_as_text(smollm2):
    tool = {"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
    turns = [{"role": "system", "content": "Be short."}, TURNS[0],
             {"role": "assistant", "content": None, "tool_calls": TURNS[1]["tool_calls"] * 2},
             {"role": "tool", "tool_call_id": "c1", "content": "rain"}, {"role": "tool", "tool_call_id": "c2", "content": "sun"}]
    prompt = smollm2.post("/apply-template", {"messages": turns, "tools": [tool]})[1]["prompt"]
    call = '{"name": "weather", "arguments": {"in": "Oslo"}}'
    assert json.dumps(tool["function"], separators=(",", ":")) in prompt and "Be short.<|im_end|>" in prompt
    assert f"<|im_start|>assistant\n{call}\n{call}<|im_end|>\n" in prompt
    assert "<|im_start|>user\nResult of the call: rain\nResult of the call: sun<|im_end|>\n" in prompt
    without = smollm2.post("/apply-template", {"messages": turns, "tools": [tool], "tool_choice": "none"})[1]["prompt"]
    assert "You can call" not in without and call in without
    body = {"messages": TURNS[:1], "tools": [tool], "tool_choice": "required", "max_tokens": 60, "temperature": 0}
    choice = smollm2.post(CHAT, body)[1]["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    assert set(json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])) == {"city"}
