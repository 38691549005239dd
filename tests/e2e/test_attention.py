# SPDX-License-Identifier: Apache-2.0
"""How a request attends: presets and role files by name."""
import json

import longwave_server

CHAT = "/v1/chat/completions"
TURNS = [{"role": "user", "content": "Count the ships in the harbour, one after the other. " * 40}]
FIELDS = {"messages": TURNS, "max_tokens": 8, "temperature": 0, "logprobs": True}


def test_presets(smollm2):
    answer = smollm2.post(CHAT, {**FIELDS, "longwave": {"attention": "dense"}})[1]
    assert answer["longwave"]["attention"] == {"preset": "dense", "roles": None}
    for attention in ("imaginary", {"preset": "imaginary"}, {"roles": "none"}):
        status, error = smollm2.error(CHAT, {**FIELDS, "longwave": {"attention": attention}})
        assert status == 400 and error["param"] == "longwave.attention" and "'dense'" in error["message"]


def test_roles_are_chosen_by_name(tmp_path):
    path = tmp_path / "half.json"
    path.write_text(json.dumps({"sink": 64, "recent": 64, "recent_prefill": 64,
                                "streaming": [{"layer": layer, "heads": [0, 1, 2]} for layer in range(30)]}))
    server = longwave_server.Server(longwave_server.MODEL, "--roles", f"half={path}", "--ctx", "2048",
                                    "--session-dir", str(tmp_path))
    try:
        dense = server.post(CHAT, FIELDS)[1]
        half = {**FIELDS, "longwave": {"attention": {"preset": "dense", "roles": "half"}}}
        first = server.post(CHAT, half)[1]
        assert first["longwave"]["attention"] == {"preset": "dense", "roles": "half"}
        assert first["longwave"]["cache"]["matched"] == 0  # what the other policy cached is not for this one
        assert first["choices"] != dense["choices"]
        second = server.post(CHAT, half)[1]
        assert second["choices"] == first["choices"] and second["longwave"]["cache"]["matched"] > 200
        assert server.metric("longwave_kv_pages") > 0
        status, saved = server.post("/v1/sessions/s/save", {"messages": TURNS, "longwave": half["longwave"]})
        assert status == 200 and saved["tokens"] > 200
        status, error = server.error(CHAT, {**FIELDS, "longwave": {"attention": {"roles": "other"}}})
        assert status == 400 and "'dense' with roles 'half'" in error["message"]
    finally:
        assert server.stop() == 0
