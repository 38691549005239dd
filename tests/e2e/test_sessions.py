# SPDX-License-Identifier: Apache-2.0
"""A cached prefix goes to a file, outlives the server, and gives the same answer as before."""
import pytest

import longwave_server

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TURNS = [{"role": "user", "content": "Tell me of the sea, in a few words. " * 20}]
FIELDS = {"messages": TURNS, "temperature": 0, "max_tokens": 24}


def delete(server, name):
    status, _, answer = server.request("DELETE", f"/v1/sessions/{name}")
    return status, longwave_server.strict_json(answer)


@pytest.mark.parametrize("options", [(), ("--kv-type", "int8")])
def test_a_session_outlives_the_server(tmp_path, options):
    options = (*options, "--session-dir", str(tmp_path), "--ctx", "2048")
    server = longwave_server.Server(longwave_server.MODEL, *options)
    cold = server.post(CHAT, FIELDS)[1]
    status, saved = server.post("/v1/sessions/sea/save", {"messages": TURNS})
    assert status == 200 and saved["saved"] and saved["tokens"] > 100 and saved["bytes"] > saved["tokens"]
    assert server.stop() == 0
    server = longwave_server.Server(longwave_server.MODEL, *options)
    try:
        status, restored = server.post("/v1/sessions/sea/restore", {})
        assert status == 200 and restored["restored"] and restored["tokens"] == saved["tokens"]
        warm = server.post(CHAT, FIELDS)[1]
        assert warm["choices"] == cold["choices"]
        assert 0 < warm["longwave"]["cache"]["matched"] <= saved["tokens"]
        assert delete(server, "sea") == (200, {"id": "sea", "object": "session", "deleted": True})
        assert delete(server, "sea")[0] == 404 and server.post("/v1/sessions/sea/restore", {})[0] == 404
        assert not [path for path in tmp_path.iterdir() if "sea" in path.name]
    finally:
        assert server.stop() == 0


def test_sessions_of_what_a_request_asks_for(tmp_path):
    """Kept of any policy, with audits or without, and restored where the same is asked for."""
    wish = {"longwave": {"attention": {"preset": "lserve-4k", "budget": 448}}}
    server = longwave_server.Server(longwave_server.MODEL, "--session-dir", str(tmp_path), "--ctx", "2048")
    cold = server.post(CHAT, {**FIELDS, **wish})[1]
    assert server.post("/v1/sessions/sea/save", {"messages": TURNS, **wish})[0] == 200
    assert server.stop() == 0
    server = longwave_server.Server(longwave_server.MODEL, "--session-dir", str(tmp_path), "--ctx", "2048", "--audit", "4")
    try:
        for other in ({}, {"longwave": {"attention": {"preset": "lserve-4k", "budget": 512}}}):
            assert server.error("/v1/sessions/sea/restore", other)[0] == 400
        assert server.post("/v1/sessions/sea/restore", wish)[0] == 200
        warm = server.post(CHAT, {**FIELDS, **wish})[1]
        assert warm["choices"] == cold["choices"] and warm["longwave"]["cache"]["matched"] > 100
        assert "audited_kl" in warm["longwave"]["attention"]
    finally:
        assert server.stop() == 0


def test_what_does_not_fit_changes_nothing(tmp_path, tiny_path):
    server = longwave_server.Server(longwave_server.MODEL, "--session-dir", str(tmp_path), "--ctx", "2048")
    try:
        assert server.error("/v1/sessions/x/save", {"prompt": "nobody asked for this before"})[0] == 404
        server.post(CHAT, FIELDS)
        assert server.post("/v1/sessions/x/save", {"messages": TURNS})[0] == 200
        path = next(path for path in tmp_path.iterdir() if path.name.startswith("x"))
        data = path.read_bytes()
        for damaged in (data[:-1], data + b"x", data[:50] + bytes([data[50] ^ 1]) + data[51:],
                        data[:-5000] + bytes([data[-5000] ^ 1]) + data[-4999:], b"", b"GGUF"):
            path.write_bytes(damaged)
            status, error = server.error("/v1/sessions/x/restore", {})
            assert status == 400 and error["code"] in ("invalid_value", "unsupported", "too_large")
        path.write_bytes(data)
        other = longwave_server.Server(tiny_path, "--session-dir", str(tmp_path))
        assert other.error("/v1/sessions/x/restore", {})[0] == 400
        assert other.stop() == 0
        assert server.post("/v1/sessions/x/restore", {})[0] == 200
        for name in ("..", "a%2Fb", "a.b", "x" * 129):
            assert server.error(f"/v1/sessions/{name}/restore", {})[0] in (400, 404)
    finally:
        assert server.stop() == 0


def test_sessions_are_off_without_a_folder(tiny):
    status, error = tiny.error("/v1/sessions/x/save", {"prompt": "the"})
    assert status == 403 and error["code"] == "forbidden"
