# SPDX-License-Identifier: Apache-2.0
"""Start and end of the process, the Unix socket, text routes, and what stays quick while the engine works."""
import http.client
import os
import signal
import select
import socket
import subprocess
import time

import pytest

import longwave_server

COMPLETIONS = "/v1/completions"


def test_text_routes(smollm2):
    text = "Hello world! Caf\u00e9 d\u00e9j\u00e0 vu - 123 \U0001f60a"
    tokens = smollm2.post("/tokenize", {"content": text})[1]["tokens"]
    assert smollm2.post("/detokenize", {"tokens": tokens})[1] == {"content": text}
    assert smollm2.post("/tokenize", {"content": "<|im_end|>"})[1]["count"] == 1
    assert smollm2.post("/tokenize", {"content": "<|im_end|>", "parse_special": False})[1]["count"] > 1
    prompt = smollm2.post("/apply-template", {"messages": [{"role": "user", "content": "<|im_end|>"}]})[1]["prompt"]
    assert prompt.endswith("<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n")
    ends = [tokens.count(2) for tokens in (
        smollm2.post("/tokenize", {"messages": [{"role": "user", "content": content}]})[1]["tokens"] for content in ("x", "<|im_end|>"))]
    assert ends[0] == ends[1]  # what a user writes is text


def test_health_is_quick_while_the_engine_works(smollm2):
    """Twenty answers and more come before those of a prompt that takes thousands of times as long."""
    s = smollm2.open_post(COMPLETIONS, {"prompt": [1000] * 8000, "max_tokens": 4})
    smollm2.wait_metric("vllm:num_requests_running", lambda value: value == 1)
    for _ in range(20):
        assert smollm2.status("/health") == 200 and smollm2.status("/livez") == 200
    answered, _, _ = select.select([s], [], [], 0)
    s.close()
    assert not answered


@pytest.mark.parametrize("options", [["--host", "127.0.0.1"], ["--host", "0.0.0.0"], ["--host", "0.0.0.0", "--api-key", "x"]])
def test_who_is_open_to_the_network_is_told(tiny_path, tmp_path, options):
    server = longwave_server.Server(tiny_path, "--log-format", "json", *options, log=tmp_path / "log")
    assert len(server.log_lines("there is no API key")) == (options[-1] == "0.0.0.0")
    assert server.stop() == 0


def test_a_drain_ends_open_answers_first(tiny_path):
    server = longwave_server.Server(tiny_path)
    s = server.open_post(COMPLETIONS, {"prompt": "the", "max_tokens": 3000, "ignore_eos": True, "stream": True})
    assert s.recv(1000)
    server.process.send_signal(signal.SIGTERM)
    answer = b""
    while piece := s.recv(65536):
        answer += piece
    assert answer.count(b'"finish_reason":"length"') == 1 and answer.rstrip().endswith(b"0") and b"[DONE]" in answer
    assert server.process.wait(10) == 0


def test_a_second_signal_stops_at_once(tiny_path):
    server = longwave_server.Server(tiny_path)
    s = server.open_post(COMPLETIONS, {"prompt": "the", "n": 128, "max_tokens": 4000, "ignore_eos": True, "stream": True})
    assert s.recv(1000)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(10) == 0
    s.close()


def is_bound(place):
    """A path of a socket, or a port that takes connections."""
    if not isinstance(place, int):
        return place.exists()
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", place)) == 0


@pytest.mark.parametrize("unix", [True, False])
def test_a_stop_does_not_wait_for_a_load(tiny_path, tmp_path, unix):
    """Nobody writes into the pipe that the roles are read from, so the load takes for ever."""
    roles, path = tmp_path / "roles", tmp_path / "longwave.sock"
    os.mkfifo(roles)
    where = ["--host", f"unix:{path}"] if unix else ["--port", str(longwave_server.free_port())]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([longwave_server.BINARY, "serve", "-m", tiny_path, "--roles", f"half={roles}", *where], stderr=log)
    deadline = time.monotonic() + 60
    while not is_bound(path if unix else int(where[1])):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0 and not path.exists()
    assert b"still loading" in (tmp_path / "log").read_bytes()


def test_unix_socket(tiny_path, tmp_path):
    path = tmp_path / "longwave.sock"
    process = subprocess.Popen([longwave_server.BINARY, "serve", "-m", tiny_path, "--host", f"unix:{path}", "--log-level", "warn"])
    try:
        deadline = time.monotonic() + 30
        answer = b""
        while b" 200 OK" not in answer and time.monotonic() < deadline:
            time.sleep(0.02)
            if not path.exists():
                continue
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(str(path))
                s.sendall(b"GET /health HTTP/1.1\r\nHost: any.name\r\nConnection: close\r\n\r\n")
                answer = s.recv(1000)
        assert b" 200 OK" in answer
    finally:
        process.terminate()
        assert process.wait(10) == 0
    assert not path.exists()


def test_what_cannot_be_served_ends_with_an_error(tiny_path, tmp_path, tiny):
    def run(*arguments):
        return subprocess.run([longwave_server.BINARY, "serve", *arguments], capture_output=True, text=True, timeout=30)

    assert run().returncode == 2
    missing = run("-m", str(tmp_path / "none.gguf"), "--port", str(longwave_server.free_port()))
    assert missing.returncode == 1 and "none.gguf" in missing.stderr
    taken = run("-m", str(tiny_path), "--port", str(tiny.port))
    assert taken.returncode == 1 and str(tiny.port) in taken.stderr


def test_keep_alive(tiny):
    connection = http.client.HTTPConnection("127.0.0.1", tiny.port, timeout=10)
    for _ in range(3):
        connection.request("POST", COMPLETIONS, b'{"prompt": "the", "max_tokens": 2}', {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200 and response.read()
    connection.close()
