# SPDX-License-Identifier: Apache-2.0
"""Tools that the model sees and may not call; conversations in which tools were called."""
import longwave_server

CHAT = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
TURNS = [
    {"role": "user", "content": "How is the weather?"},
    {"role": "assistant", "content": None,
     "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"in\": \"Oslo\"}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
]
TEMPLATE = (b"{%for t in tools or []%}[{{t.function.name}}]{%endfor%}{%for m in messages%}{{m.role}}:{%for c in m.tool_calls or []%}"
            b"({{c.function.arguments.in}}){%endfor%}{{m.content or ''}};{%endfor%}")


def test_the_template_shows_tools_and_calls(tiny_path, tmp_path):
    data, path = tiny_path.read_bytes(), tmp_path / "tools.gguf"
    end = b"assistant\n' }}{% endif %}"
    old = data[data.index(b"{% for message"):data.index(end) + len(end)]
    assert len(TEMPLATE) + 4 <= len(old)
    path.write_bytes(data.replace(old, TEMPLATE + b"{#" + b" " * (len(old) - len(TEMPLATE) - 4) + b"#}"))
    server = longwave_server.Server(path)
    try:
        body = {"messages": TURNS, "tools": [TOOL], "tool_choice": "none"}
        wanted = "[weather]user:How is the weather?;assistant:(Oslo);tool:rain;"
        assert server.post("/apply-template", body) == (200, {"prompt": wanted})
        assert server.post("/apply-template", {"messages": TURNS})[1] == {"prompt": wanted.removeprefix("[weather]")}
        assert server.post(CHAT, {**body, "max_tokens": 2})[0] == 200
    finally:
        assert server.stop() == 0


def test_calls_are_refused(smollm2):
    for fields in ({"tools": [TOOL]}, {"tools": [TOOL], "tool_choice": "auto"}, {"tool_choice": "required"},
                   {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}}}):
        status, error = smollm2.error(CHAT, {"messages": TURNS, **fields})
        assert status == 400 and error["code"] == "unsupported"
    assert smollm2.post(CHAT, {"messages": TURNS[:1], "tools": [TOOL], "tool_choice": "none", "max_tokens": 2})[0] == 200
