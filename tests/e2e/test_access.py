# SPDX-License-Identifier: Apache-2.0
"""Keys with names, scopes and limits, as clients and the log see them."""
import re
import signal

import openai
import pytest

import longwave_server

KEYS = "alice:ka requests=3\nbob:kb\nops:ko scope=admin\nwatch:kw scope=monitor\n"
FIELDS = {"model": "tiny", "prompt": "the", "max_tokens": 2}


@pytest.fixture
def guarded(tiny_path, tmp_path):
    (tmp_path / "keys").write_text(KEYS, encoding="utf-8")
    server = longwave_server.Server(tiny_path, "--alias", "tiny", "--api-key-file", str(tmp_path / "keys"), "--cors-origins",
                                    "https://a.org", "--session-dir", str(tmp_path), "--log-format", "json", log=tmp_path / "log")
    yield server
    assert server.stop() == 0


def client(server, key, **more):
    return openai.OpenAI(base_url=server.url, api_key=key, max_retries=0, **more)


def test_limits_reach_the_client_and_outlive_a_reload(guarded, tmp_path):
    alice = client(guarded, "ka")
    for left in (2, 1, 0):
        raw = alice.completions.with_raw_response.create(**FIELDS)
        assert raw.headers["x-ratelimit-limit-requests"] == "3" and raw.headers["x-ratelimit-remaining-requests"] == str(left)
        assert re.fullmatch(r"(\d+m)?[\d.]+m?s", raw.headers["x-ratelimit-reset-requests"])
    with pytest.raises(openai.RateLimitError) as caught:
        alice.completions.create(**FIELDS)
    assert caught.value.code == "rate_limit_exceeded" and 1 <= int(caught.value.response.headers["Retry-After"]) <= 20
    client(guarded, "kb").completions.create(**FIELDS)
    (tmp_path / "keys").write_text(KEYS.replace("ka requests=3", "new requests=5"), encoding="utf-8")
    guarded.process.send_signal(signal.SIGHUP)
    guarded.wait_log("reloaded")
    with pytest.raises(openai.AuthenticationError):
        alice.completions.create(**FIELDS)
    alice = client(guarded, "new")
    alice.completions.create(**FIELDS)
    alice.completions.create(**FIELDS)
    with pytest.raises(openai.RateLimitError):
        alice.completions.create(**FIELDS)
    page = guarded.request("GET", "/metrics", headers={"Authorization": "Bearer kw"})[2].decode()
    counted = dict(re.findall(r'^longwave_key_requests_total\{.*key="(\w+)"\} (\d+)$', page, re.M))
    assert counted == {"alice": "5", "bob": "1", "ops": "0", "watch": "0"}
    assert "longwave_key" not in guarded.request("GET", "/metrics", headers={"Authorization": "Bearer kb"})[2].decode()


def test_scopes(guarded):
    with pytest.raises(openai.PermissionDeniedError):
        client(guarded, "kw").completions.create(**FIELDS)
    for key, status in (("kb", 403), ("ko", 404)):
        assert guarded.request("POST", "/v1/sessions/s/restore", {}, {"Authorization": f"Bearer {key}"})[0] == status


def test_names_of_requests_are_in_the_log(guarded):
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"x-request-id": "outer-7", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    raw = client(guarded, "kb", default_headers=headers).completions.with_raw_response.create(**FIELDS)
    assert raw.headers["x-request-id"] == "outer-7"
    span = re.fullmatch(rf"00-{trace}-([0-9a-f]{{16}})-01", raw.headers["traceparent"])[1]
    line = guarded.wait_log("request")
    assert (line["x_request_id"], line["trace_id"], line["span_id"], line["key"]) == ("outer-7", trace, span, "bob")
    client(guarded, "kb").models.list()
    assert guarded.request("GET", "/nowhere")[0] == 404
    line = guarded.wait_log("request", 2)
    assert line["x_request_id"].startswith("req_") and "trace_id" not in line and "key" not in line


def test_names_of_the_server(tiny, tiny_path, tmp_path):
    """Without keys, on a loopback address, what a web page calls by its own name is refused (DNS rebinding)."""
    def refused(server, host):
        status, _, answer = server.request("GET", "/v1/models", headers={"Host": host})
        return status == 403 and longwave_server.strict_json(answer)["error"]["code"] == "host_not_allowed"

    assert refused(tiny, f"evil.com:{tiny.port}") and not refused(tiny, f"localhost:{tiny.port}") and not refused(tiny, "[::1]")
    config = tmp_path / "longwave.conf"
    config.write_text("[server]\n", encoding="utf-8")
    server = longwave_server.Server(tiny_path, "--config", str(config), "--log-format", "json", log=tmp_path / "log")
    try:
        assert refused(server, "llm.example.org")
        config.write_text("[server]\nallowed_hosts = llm.example.org\n", encoding="utf-8")
        server.process.send_signal(signal.SIGHUP)
        server.wait_log("reloaded")
        assert not refused(server, "llm.example.org") and refused(server, "evil.com")
    finally:
        assert server.stop() == 0


def test_web_pages(guarded):
    ask = {"Origin": "https://a.org", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    status, headers, _ = guarded.request("OPTIONS", "/v1/chat/completions", headers=ask)
    assert status == 204 and headers["Access-Control-Allow-Origin"] == "https://a.org"
    assert headers["Access-Control-Allow-Headers"] == "authorization" and "POST" in headers["Access-Control-Allow-Methods"]
    status, headers, _ = guarded.request("OPTIONS", "/v1/chat/completions", headers={**ask, "Origin": "https://b.org"})
    assert status == 204 and not [name for name in headers if name.startswith("Access-Control")]
