# SPDX-License-Identifier: Apache-2.0
"""The page at /, as bytes and headers. What it does in a browser: tests/page."""
import base64
import hashlib
import re
import signal

import longwave_server


def between(page, tag):
    return re.search(rf"<{tag}>(.*)</{tag}>", page, re.S)[1]


def test_policy_lets_in_what_the_page_holds_and_nothing_else(tiny):
    status, headers, body = tiny.request("GET", "/")
    page = body.decode()
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8" and "SPDX-License-Identifier: Apache-2.0" in page
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    for tag in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(between(page, tag).encode()).digest()).decode()
        assert policy.pop(f"{tag}-src") == f"'sha256-{digest}'"
    assert policy.pop("connect-src") == "'self'" and policy.pop("img-src") == "data:"
    assert policy.pop("require-trusted-types-for") == "'script'" and set(policy.values()) == {"'none'"}
    assert {"default-src", "base-uri", "form-action", "frame-ancestors", "trusted-types"} == set(policy)
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Frame-Options"] == "DENY" and headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_page_needs_nothing_from_elsewhere(tiny):
    page = tiny.request("GET", "/")[2].decode()
    assert set(re.findall(r"https?://[^\s'\"]+", page)) == {"http://www.w3.org/2000/svg"}  # a namespace, not fetched
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\sstyle=|\son\w+=", page)


def test_page_is_asked_for_again_only_when_it_changed(tiny):
    status, headers, body = tiny.request("GET", "/")
    etag = headers["ETag"]
    assert re.fullmatch(r'"[0-9a-f]{32}"', etag) and headers["Cache-Control"] == "no-cache"
    for tags in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        status, headers, rest = tiny.request("GET", "/", headers={"If-None-Match": tags})
        assert (status, rest, headers["ETag"]) == (304, b"", etag) and "Content-Security-Policy" in headers
    for tags in ('"other"', etag.strip('"'), ""):
        assert tiny.request("GET", "/", headers={"If-None-Match": tags})[::2] == (200, body)
    status, headers, rest = tiny.request("HEAD", "/")
    assert (status, rest, headers["Content-Length"]) == (200, b"", str(len(body)))
    status, headers, _ = tiny.request("POST", "/", {})
    assert status == 405 and headers["Allow"] == "GET, HEAD, OPTIONS"


def test_page_needs_no_key_and_can_be_switched_off(tiny_path, tmp_path):
    config = tmp_path / "longwave.conf"
    config.write_text("[server]\npage = off\n", encoding="utf-8")
    server = longwave_server.Server(tiny_path, "--config", str(config), "--api-key", "k", "--log-format", "json", log=tmp_path / "log")
    try:
        status, error = server.request("GET", "/")[0], longwave_server.strict_json(server.request("GET", "/")[2])["error"]
        assert status == 404 and error["code"] == "unknown_url" and "switched off" in error["message"]
        config.write_text("[server]\npage = on\n", encoding="utf-8")
        server.process.send_signal(signal.SIGHUP)
        server.wait_log("reloaded")
        assert server.status("/") == 200 and server.status("/v1/models") == 401
    finally:
        assert server.stop() == 0


def test_models_tell_how_a_request_may_attend(tiny, tiny_path):
    told = tiny.request("GET", "/v1/models")[2]
    attention = longwave_server.strict_json(told)["data"][0]["longwave"]["attention"]
    assert attention["default"] == {"preset": "dense", "roles": None} and attention["certified_tokens"] is None
    names = [policy["preset"] for policy in attention["policies"]]
    assert names[0] == "dense" and "lserve-4k" in names and "oracle" not in names and len(set(names)) == len(names)
    for policy in attention["policies"]:
        wish = {"prompt": "the", "max_tokens": 1, "longwave": {"attention": {"preset": policy["preset"]}}}
        assert tiny.post("/v1/completions", wish)[0] == 200
    server = longwave_server.Server(tiny_path, "--baselines", "--attention", "hip-3k")
    try:
        attention = longwave_server.strict_json(server.request("GET", "/v1/models")[2])["data"][0]["longwave"]["attention"]
        assert attention["default"]["preset"] == "hip-3k" and "oracle" in [policy["preset"] for policy in attention["policies"]]
    finally:
        assert server.stop() == 0
