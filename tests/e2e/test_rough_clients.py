# SPDX-License-Identifier: Apache-2.0
"""Clients that stop reading, that leave at any time, and a stop of the server in the middle of everything: who stays gets
the answer that is given alone, and nothing is left behind."""
import concurrent.futures
import json
import random
import signal
import socket
import threading
import time

import pytest

import longwave_server
from test_same_answer import OTHER_REACH, Kind

COMPLETIONS = "/v1/completions"
LEAST_MEMORY, CONTEXT = "1M", 1024
random.seed(5)
TEXT = [random.randrange(3, 250) for _ in range(900)]


def read_to_end(s, timeout=60.0):
    """All that comes until the server closes; None: it does not."""
    s.settimeout(timeout)
    answer = b""
    try:
        while piece := s.recv(1 << 16):
            answer += piece
    except TimeoutError:
        return None
    except OSError:
        pass
    return answer


def deaf_post(server, body):
    """A request whose client has little room and reads nothing."""
    data = json.dumps(body).encode()
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", server.port))
    s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
              % (COMPLETIONS.encode(), len(data)) + data)
    return s


def test_clients_that_stop_reading(tiny_path):
    server = longwave_server.Server(tiny_path)
    try:
        ask = {"prompt": "the weather", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
        alone = server.post(COMPLETIONS, ask)[1]["choices"]
        deaf = [deaf_post(server, {"prompt": "the", "n": 16, "max_tokens": 4000, "ignore_eos": True, "logprobs": 5, "stream": True})
                for _ in range(3)]
        server.wait_metric("longwave_generations_open", lambda n: n == 3)
        n_served, until = 0, time.monotonic() + 120
        while server.metric("longwave_generations_open"):  # each is cut off; the others never wait for them
            assert time.monotonic() < until, "a client that reads nothing is served for ever"
            began = time.monotonic()
            assert server.post(COMPLETIONS, ask)[1]["choices"] == alone and server.status("/livez") == 200
            assert time.monotonic() - began < 60
            n_served += 1
        assert n_served > 10
        server.wait_idle()
        for s in deaf:
            answer = read_to_end(s)
            assert answer is not None and b"[DONE]" not in answer
            s.close()
    finally:
        assert server.stop() == 0


class Crowd:
    """Clients in threads, and what came back to each."""

    def __init__(self, server):
        self.server, self.threads, self.answers = server, [], {}

    def ask(self, name, body, path=COMPLETIONS):
        def run():
            s = self.server.open_post(path, {**body, **({"stream": True} if path == COMPLETIONS else {})})
            self.answers[name] = read_to_end(s, 600)
            s.close()
        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def join(self):
        for thread in self.threads:
            thread.join()
        return self.answers


def mixed_crowd(server):
    """Every state at once: some decode, some wait, one is read, some gave way, and sessions are saved."""
    crowd = Crowd(server)
    for i in range(14):
        crowd.ask(f"long answer {i}", {"prompt": TEXT[i:i + 100], "max_tokens": 900, "ignore_eos": True, "cache_salt": str(i)})
        if i < 3:  # who came first never gives way
            server.wait_metric("longwave_generations_open", lambda n, wanted=i + 1: n == wanted)
    server.wait_metric("vllm:num_preemptions_total", lambda n: n > 0, 300)
    for i in range(4):
        crowd.ask(f"long prompt {i}", {"prompt": TEXT[i * 9:i * 9 + 800], "max_tokens": 5, "ignore_eos": True, "cache_salt": "p"})
    for i in range(3):
        crowd.ask(f"session {i}", {"prompt": TEXT[i:i + 100], "cache_salt": str(i)}, f"/v1/sessions/s{i}/save")
    server.wait_metric("vllm:num_requests_waiting", lambda n: n > 4)
    return crowd


@pytest.fixture
def mixed_server(tmp_path_factory, tmp_path):
    """Slow enough to be met in the middle; memory for four contexts."""
    model = longwave_server.make_tiny_model(tmp_path_factory.mktemp("models") / "deep.gguf", "context=4096", "layers=16")
    return longwave_server.Server(model, "--ctx", str(CONTEXT), "--host-memory", "8M", "--max-batch", "8",
                                  "--prefill-chunk", "64", "--session-dir", str(tmp_path), "--drain-timeout", "600s")


def test_a_drain_in_the_middle_of_everything(mixed_server, tmp_path):
    crowd = mixed_crowd(mixed_server)
    mixed_server.process.send_signal(signal.SIGTERM)
    answers = crowd.join()
    assert mixed_server.process.wait(600) == 0
    for name, answer in answers.items():
        if name.startswith("session"):
            assert answer is not None and (b'"saved":true' in answer or b'"draining"' in answer), (name, answer)
        else:
            assert answer is not None and b"data: [DONE]" in answer and b'"finish_reason":"length"' in answer, (name, answer)
    saved = {f"s{name.split()[1]}.session" for name, answer in answers.items() if b'"saved":true' in answer}
    assert {path.name for path in tmp_path.iterdir()} == saved


def test_a_stop_in_the_middle_of_everything(mixed_server, tmp_path):
    """The second signal, another one so that they cannot become one: every stream ends in band, with an error if it was not at its end."""
    crowd = mixed_crowd(mixed_server)
    mixed_server.process.send_signal(signal.SIGTERM)
    mixed_server.process.send_signal(signal.SIGINT)
    answers = crowd.join()
    assert mixed_server.process.wait(120) == 0
    for name, answer in answers.items():
        assert answer is not None and (b"data: [DONE]" in answer or b'"error"' in answer or b'"saved":true' in answer), (name, answer)
    assert sum(b'"error"' in answer for answer in answers.values()) > 0
    assert all(path.name.endswith(".session") and not path.name.startswith(".") for path in tmp_path.iterdir())


@pytest.mark.parametrize("swap_memory", ["1G", "64K"])
def test_streaming_heads_under_load(tiny_path, tmp_path, swap_memory):
    """Prefill and decode reach back differently, so what gave way is copied out, or decoded once more where there is no room;
    every third client leaves, some are aborted."""
    kind = Kind(tiny_path, "f16", OTHER_REACH, tmp_path)

    def fields(i):
        return {"prompt": TEXT[10 * i:10 * i + 40 + 20 * i], "max_tokens": 250, "temperature": 0, "ignore_eos": True,
                "request_id": f"r{random.random()}", **kind.attention}

    def complete(server, i):
        status, answer = server.post(COMPLETIONS, {**fields(i % 12), "cache_salt": str(i)})
        return answer["choices"][0]["text"] if status == 200 else None

    def client(server, i):
        if i % 3:
            return complete(server, i)
        body = {**fields(i % 12), "stream": True, "cache_salt": str(i)}
        s = server.open_post(COMPLETIONS, body)
        s.settimeout(60)
        for _ in range(i % 7):
            s.recv(4096)
        if i % 2:
            server.post("/v1/abort", {"request_id": body["request_id"]})
        s.close()
        return None

    with kind.server("--cache", "off") as server:
        alone = [complete(server, i) for i in range(12)]
    with kind.server("--host-memory", LEAST_MEMORY, "--cache", "exact", "--swap-memory", swap_memory) as server:
        with concurrent.futures.ThreadPoolExecutor(48) as pool:
            got = list(pool.map(lambda i: client(server, i), range(96)))
        assert all(text == alone[i % 12] for i, text in enumerate(got) if i % 3)
        server.wait_idle()
        assert server.metric("vllm:num_preemptions_total") > 0 and server.metric("longwave_swap_in_bytes_total") > 0
