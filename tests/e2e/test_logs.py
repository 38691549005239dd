# SPDX-License-Identifier: Apache-2.0
"""What the log says of requests, and what it never says."""
import pathlib
import re
import signal
import socket
import time

import pytest

import longwave_server

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture
def logged(tiny_path, tmp_path):
    server = longwave_server.Server(tiny_path, "--log-format", "json", log=tmp_path / "log")
    yield server
    assert server.stop() == 0


def test_a_request_leaves_one_line(logged):
    logged.post(COMPLETIONS, {"prompt": "a secret", "max_tokens": 7, "ignore_eos": True, "request_id": "mine"})
    line = logged.wait_log("request")
    assert line["status"] == 200 and line["end"] == "done" and line["finish"] == "length" and not line["stream"]
    assert line["route"] == COMPLETIONS and line["id"].startswith("cmpl-") and line["request_id"] == "mine"
    assert line["completion_tokens"] == 7 and line["prompt_tokens"] > 1 and line["cached_tokens"] >= 0
    assert min(line["queue_ms"], line["prefill_ms"]) >= 0 and line["tokens_per_second"] > 0
    logged.frames(CHAT, {"messages": [{"role": "user", "content": "a secret"}], "max_tokens": 3, "ignore_eos": True})
    line = logged.wait_log("request", 2)
    assert line["stream"] and line["route"] == CHAT and line["completion_tokens"] == 3
    logged.status("/health")  # has no line: the next one is of what comes behind it
    logged.post(COMPLETIONS, {"prompt": "a", "max_tokens": 1, "request_id": "behind"})
    assert logged.wait_log("request", 3)["request_id"] == "behind" and len(logged.log_lines("request")) == 3
    assert "secret" not in pathlib.Path(logged.log_path).read_text(encoding="utf-8")


def test_how_requests_end(logged):
    assert logged.error(COMPLETIONS, {"prompt": "x", "temperature": 9})[0] == 400
    line = logged.wait_log("request")
    assert line["status"] == 400 and line["end"] == "refused" and line["code"] == "invalid_value"
    s = logged.open_post(COMPLETIONS, {"prompt": "x", "max_tokens": 3000, "ignore_eos": True, "stream": True})
    assert s.recv(100)
    s.close()
    line = logged.wait_log("request", 2)
    assert line["end"] == "client_gone" and line["prompt_tokens"] >= 1 and "finish" not in line
    s = logged.open_post(COMPLETIONS, {"prompt": "x", "max_tokens": 3000, "ignore_eos": True, "request_id": "r"})
    logged.wait_metric("vllm:num_requests_running", lambda value: value == 1)
    assert logged.post("/v1/abort", {"request_id": "r"})[1] == {"aborted": 1}
    ends = [line for line in logged.log_lines("request") if line.get("request_id") == "r"]
    assert [(line["end"], line["status"], line["code"]) for line in ends] == [("aborted", 499, "cancelled")]
    s.close()


def test_prompts_only_when_asked(tiny_path, tmp_path):
    server = longwave_server.Server(tiny_path, "--log-format", "json", "--log-prompts", log=tmp_path / "log")
    server.post(COMPLETIONS, {"prompt": "tell \"me\" \u00e9", "max_tokens": 1})
    assert server.wait_log("prompt")["text"] == "tell \"me\" \u00e9"
    server.post(COMPLETIONS, {"prompt": "long " * 600, "max_tokens": 1})
    assert server.wait_log("prompt", 2)["text"].startswith("long long")
    assert server.stop() == 0


def test_text_lines(tiny_path, tmp_path):
    server = longwave_server.Server(tiny_path, log=tmp_path / "log")
    server.post(COMPLETIONS, {"prompt": "x", "max_tokens": 1})
    assert server.stop() == 0
    lines = [line for line in (tmp_path / "log").read_text().splitlines() if " msg=\"request\" " in line]
    assert len(lines) == 1 and " status=200 end=\"done\" " in lines[0] and " level=info " in lines[0]


def test_a_busy_server_tells_its_state(tiny_path, tmp_path):
    server = longwave_server.Server(tiny_path, "--log-format", "json", log=tmp_path / "log")
    s = server.open_post(COMPLETIONS, {"prompt": "x", "n": 128, "max_tokens": 4000, "ignore_eos": True})
    line = server.wait_log("status", timeout=25)
    assert line["running"] >= 1 and line["generated_tokens_per_second"] > 0
    s.close()
    assert server.stop() == 0


def write_config(path, keys, **options):
    limits = "".join(f"{key} = {value}\n" for key, value in options.items())
    path.write_text(f"[server]\napi_key_file = {keys}\n{limits}", encoding="utf-8")


def ask(server, key, **fields):
    return server.request("POST", COMPLETIONS, {"prompt": "x", "max_tokens": 2, **fields}, {"Authorization": f"Bearer {key}"})[0]


def test_sighup_reloads_keys_limits_and_level(tiny_path, tmp_path):
    keys, config = tmp_path / "keys", tmp_path / "longwave.conf"
    keys.write_text("first\n")
    write_config(config, keys, max_output_tokens=100, max_body="1M")
    server = longwave_server.Server(tiny_path, "--config", config, "--log-format", "json", log=tmp_path / "log")
    assert ask(server, "first") == 200 and ask(server, "second") == 401
    keys.write_text("name:second\n")
    write_config(config, keys, max_output_tokens=1, max_body="2M")
    with config.open("a") as file:
        file.write("[batching]\nmax_stall_ms = 30\nprefill_chunk = 64\n")
    server.process.send_signal(signal.SIGHUP)
    server.wait_log("reloaded")
    assert ask(server, "first") == 401 and ask(server, "second") == 400 and ask(server, "second", max_tokens=1) == 200
    assert [line["msg"].split("'")[1] for line in server.log_lines("'")] == ["prefill_chunk", "max_body"]
    # A fault in the file, or in the keys, leaves all as it was.
    write_config(config, keys, max_output_tokens=50, max_queue="many")
    server.process.send_signal(signal.SIGHUP)
    assert "longwave.conf:4" in server.wait_log("nothing is reloaded")["msg"]
    assert ask(server, "second") == 400
    write_config(config, tmp_path / "none", max_output_tokens=50)
    server.process.send_signal(signal.SIGHUP)
    assert "none" in server.wait_log("nothing is reloaded", 2)["msg"]
    assert ask(server, "second") == 400 and ask(server, "second", max_tokens=1) == 200
    # The level, last since it silences what tells of it.
    write_config(config, keys, max_output_tokens=50)
    with config.open("a") as file:
        file.write("[log]\nlog_level = error\n")
    server.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while ask(server, "second") != 200:
        assert time.monotonic() < deadline
    n = len(server.log_lines("request"))
    assert ask(server, "second") == 200
    time.sleep(0.2)
    assert len(server.log_lines("request")) == n
    assert server.stop() == 0


def test_sighup_changes_what_may_wait(tiny_path, tmp_path):
    keys, config = tmp_path / "keys", tmp_path / "longwave.conf"
    keys.write_text("k\n")
    write_config(config, keys, max_queue=2)
    server = longwave_server.Server(tiny_path, "--config", config, "--max-batch", "1", "--log-format", "json",
                                    log=tmp_path / "log")
    held = []
    for n in (1, 2):  # one runs, one waits
        body = b'{"prompt": "the", "max_tokens": 4000, "n": 8, "ignore_eos": true}'
        held.append(socket.create_connection(("127.0.0.1", server.port)))
        held[-1].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\n"
                         b"Content-Length: %d\r\n\r\n" % len(body) + body)
        deadline = time.monotonic() + 10
        while open_generations(server) < n:
            assert time.monotonic() < deadline
    write_config(config, keys, max_queue=1)
    server.process.send_signal(signal.SIGHUP)
    server.wait_log("reloaded")
    assert ask(server, "k") == 429
    write_config(config, keys, max_queue=3)
    server.process.send_signal(signal.SIGHUP)
    server.wait_log("reloaded", 2)
    held[0].close()
    held[1].close()
    assert ask(server, "k") == 200
    assert server.stop() == 0


def open_generations(server):
    page = server.request("GET", "/metrics", headers={"Authorization": "Bearer k"})[2].decode()
    return float(re.search(r"^longwave_generations_open.* (\S+)$", page, re.M)[1])
