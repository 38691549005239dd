# SPDX-License-Identifier: Apache-2.0
"""longwave bench serve: what it counts, against what a real server counts and what a scripted one does; never how long it took."""
import http.server
import json
import os
import socket
import socketserver
import subprocess
import threading
import time

import pytest

from longwave_server import BINARY, free_port, strict_json

QUICK = ("--prompt-tokens", "8-16", "--answer-tokens", "6")
TIMES = ("first_token_ms", "gap_ms", "per_token_ms", "answer_ms", "send_delay_ms")


def load(port, *options, env=None):
    return subprocess.run([BINARY, "bench", "serve", "--port", str(port), *QUICK, *options], capture_output=True, timeout=300,
                          text=True, env={**os.environ, **(env or {})})


def figures(port, *options, status=0, **more):
    done = load(port, *options, "--json", **more)
    assert done.returncode == status, done.stderr
    assert status or done.stderr == ""
    found = strict_json(done.stdout)
    for key in TIMES:
        row = found[key]
        assert 0 <= row["min"] <= row["p50"] <= row["p90"] <= row["p99"] <= row["max"]
        assert row["min"] <= row["mean"] <= row["max"]
    counts = found["requests"]
    assert counts["sent"] == sum(counts[key] for key in ("answered", "rejected", "failed", "timed_out"))
    assert found["answer_ms"]["n"] == found["send_delay_ms"]["n"] == counts["answered"]
    return found


def test_counts_are_the_servers(tiny):
    tokens = {"prompt": "vllm:prompt_tokens_total", "answer": "vllm:generation_tokens_total", "cached": "vllm:prefix_cache_hits_total"}
    before = {key: tiny.metric(name) for key, name in tokens.items()}
    found = figures(tiny.port, "--clients", "3", "--requests", "10")
    assert found["requests"] == {"sent": 10, "answered": 10, "rejected": 0, "failed": 0, "timed_out": 0, "without_usage": 0, "resent": 0}
    assert found["tokens"]["answer"] == 60 and found["model"] == "tiny" and found["loop"] == "closed"
    assert 1 <= found["peak_streams"] <= 3 and found["dialogues"] == 10 and found["errors"] == []
    for key, name in tokens.items():
        tiny.wait_metric(name, lambda value, key=key: value - before[key] == found["tokens"][key])
    assert found["first_token_ms"]["n"] == 10 and found["gap_ms"]["n"] <= 50
    assert found["first_token_ms"]["p50"] <= found["answer_ms"]["p50"]


def test_open_loop(tiny):
    found = figures(tiny.port, "--rate", "200", "--requests", "12", "--endpoint", "completions")
    assert found["loop"] == "open" and found["rate"] == 200 and found["endpoint"] == "completions"
    assert found["requests"]["answered"] == 12 and found["tokens"]["answer"] == 72


def test_the_same_seed_asks_the_same(tiny):
    first = figures(tiny.port, "--requests", "3", "--clients", "1", "--seed", "5")
    again = figures(tiny.port, "--requests", "3", "--clients", "1", "--seed", "5")
    other = figures(tiny.port, "--requests", "3", "--clients", "1")
    assert again["tokens"]["prompt"] == first["tokens"]["prompt"]
    assert again["tokens"]["cached"] > first["tokens"]["cached"] and other["seed"] != 5
    assert other["tokens"]["cached"] < again["tokens"]["cached"]


def test_prefixes_are_found_in_the_cache(tiny):
    found = figures(tiny.port, "--workload", "prefix", "--prefix-tokens", "200", "--requests", "5", "--clients", "1")
    assert found["tokens"]["cached"] >= 4 * 192


def test_an_agent_goes_on(tiny):
    found = figures(tiny.port, "--workload", "agent", "--prefix-tokens", "70", "--turns", "3", "--tool-tokens", "5", "--think-ms", "0-2",
                    "--requests", "7", "--clients", "1")
    assert found["dialogues"] == 3 and found["requests"]["answered"] == 7
    assert found["tokens"]["cached"] > 4 * 64, "each turn begins with the one before"


def test_a_trace_is_replayed(tiny, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps({"at": 0.01 * i, "answer_tokens": i + 1, **prompt}) + "\n"
                             for i, prompt in enumerate(({"prompt": "one"}, {"prompt_tokens": 20}, {"prompt": "three"}))))
    found = figures(tiny.port, "--replay", str(trace))
    assert found["replay"] == str(trace) and found["loop"] == "open"
    assert found["requests"]["answered"] == 3 and found["tokens"]["answer"] == 6
    assert figures(tiny.port, "--replay", str(trace), "--requests", "2")["tokens"]["answer"] == 3


def test_clients_bound_the_open_loop_too(tiny):
    found = figures(tiny.port, "--rate", "100000", "--requests", "30", "--clients", "2")
    assert found["loop"] == "open" and found["requests"]["answered"] == 30 and found["peak_streams"] <= 2


def test_a_duration_ends_it(tiny):
    found = figures(tiny.port, "--duration", "1", "--clients", "2")
    assert found["seconds"] >= 0.9 and found["requests"]["answered"] == found["requests"]["sent"] > 0


def test_text_has_a_row_for_each_time(tiny):
    done = load(tiny.port, "--requests", "2", "--clients", "1")
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert "2 requests: 2 answered, 0 rejected, 0 failed, 0 timed out" in lines[1]
    assert [line[:16].strip() for line in lines[5:]] == ["milliseconds", "first token", "between tokens", "mean per token", "whole answer",
                                                         "late in sending"]


# ---- a server that does as it is told ----

def frames(*texts, usage=True, done=True):
    events = [{"choices": [{"delta": {"content": text}}]} for text in texts]
    if usage:
        events.append({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": len(texts),
                                                "prompt_tokens_details": {"cached_tokens": 4}}})
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + ("data: [DONE]\n\n" if done else "")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, **headers):
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.server.key and self.headers.get("Authorization") != f"Bearer {self.server.key}":
            return self.answer(401, '{"error":{"message":"no key, no model"}}')
        return self.answer(200, '{"object":"list","data":[{"id":"fake"}]}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.bodies.append(body)
            turn = self.server.script[min(len(self.server.bodies), len(self.server.script)) - 1]
        turn(self)


class Scripted(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address, *script, key=None):
        if isinstance(address, str):
            self.address_family = socket.AF_UNIX
        self.script, self.key, self.bodies, self.lock = script, key, [], threading.Lock()
        super().__init__(address, Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self):
        return self.server_address[1]

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


def scripted(*script, **more):
    return Scripted(("127.0.0.1", 0), *script, **more)


def whole(handler):
    handler.answer(200, frames("a", "b", "c"))


def refuse(status, **headers):
    return lambda handler: handler.answer(status, '{"error":{"message":"not now"}}', **headers)


def cut(handler):
    """A length that the body does not reach."""
    data = frames("a").encode()
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(data) + 1) + data)
    handler.close_connection = True


def test_what_goes_wrong_is_counted_by_kind():
    script = [whole, refuse(429, Retry_After="0"), refuse(503), refuse(500), cut,
              lambda handler: handler.answer(200, frames("a", done=False)),
              lambda handler: handler.answer(200, 'data: {"error":{"message":"in the middle"}}\n\ndata: [DONE]\n\n'),
              lambda handler: handler.answer(200, '{"choices":[]}'), whole]
    with scripted(*script) as server:
        found = figures(server.port, "--requests", "9", "--clients", "1", status=1)
        assert [len(body["messages"]) for body in server.bodies] == [1] * 9
    assert found["requests"] == {"sent": 9, "answered": 2, "rejected": 2, "failed": 5, "timed_out": 0, "without_usage": 0,
                                 "resent": found["requests"]["resent"]}
    assert found["tokens"] == {"prompt": 20, "cached": 8, "answer": 6}
    assert {error["text"]: error["count"] for error in found["errors"]} == {
        "status 429: not now": 1, "status 503: not now": 1, "status 500: not now": 1, "the connection ended within the answer": 1,
        "the answer ends without [DONE]": 2, "in the stream: in the middle": 1}
    assert found["gap_ms"]["n"] == 4 and found["first_token_ms"]["n"] == 2


def test_rejections_alone_are_no_failure_but_an_answer_must_come():
    with scripted(whole, refuse(429)) as server:
        found = figures(server.port, "--requests", "3", "--clients", "1")
        assert found["requests"]["answered"] == 1 and found["requests"]["rejected"] == 2
    with scripted(refuse(429)) as server:
        assert figures(server.port, "--requests", "2", "--clients", "2", status=1)["requests"]["rejected"] == 2


def test_without_usage_events_count():
    with scripted(lambda handler: handler.answer(200, frames("a", "b", usage=False))) as server:
        found = figures(server.port, "--requests", "2", "--clients", "1")
    assert found["requests"]["without_usage"] == 2 and found["tokens"] == {"prompt": 0, "cached": 0, "answer": 4}


def test_a_request_that_takes_too_long():
    release = threading.Event()

    def hang(handler):
        release.wait(60)
        handler.close_connection = True
    with scripted(hang, whole) as server:
        found = figures(server.port, "--requests", "2", "--clients", "1", "--request-timeout", "5s", status=1)
        release.set()
    assert found["requests"]["timed_out"] == 1 and found["requests"]["answered"] == 1


def test_a_connection_that_was_closed_while_it_idled_is_made_again():
    def once(handler):
        whole(handler)
        handler.close_connection = True
    with scripted(once) as server:
        found = figures(server.port, "--requests", "5", "--clients", "2")
    assert found["requests"]["answered"] == 5


def close_after(seconds):
    def close(handler):
        time.sleep(seconds)
        handler.close_connection = True
    return close


def test_a_request_goes_out_again_only_where_the_connection_broke_at_once():
    with scripted(whole, close_after(0), whole) as server:
        found = figures(server.port, "--requests", "2", "--clients", "1")
        assert found["requests"]["resent"] == 1 and found["requests"]["answered"] == 2 and len(server.bodies) == 3
    with scripted(whole, close_after(0), whole) as server:
        assert "1 requests went out again" in load(server.port, "--requests", "2", "--clients", "1").stdout
    with scripted(whole, close_after(1.5), whole) as server:
        found = figures(server.port, "--requests", "2", "--clients", "1", status=1)
        assert found["requests"]["resent"] == 0 and found["requests"]["failed"] == 1 and len(server.bodies) == 2


@pytest.mark.parametrize("options", [("--requests", "1", "--clients", "1"), ("--duration", "1", "--clients", "2")])
def test_nobody_waits_for_those_that_think(options):
    with scripted(whole) as server:
        found = figures(server.port, "--workload", "agent", "--turns", "2", "--think-ms", "60000", "--prefix-tokens", "5", *options)
    assert found["seconds"] < 30 and found["requests"]["answered"] == int(options[-1])


def test_a_list_of_models_that_does_not_come():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = load(silent.getsockname()[1], "--request-timeout", "1s")
    assert done.returncode == 1 and "/v1/models: no answer within 1 s" in done.stderr


def test_the_first_alias_is_the_model():
    with scripted(whole) as server:
        assert figures(server.port, "--alias", ",one,two", "--requests", "1")["model"] == "one"
        assert server.bodies[0]["model"] == "one"
        done = load(server.port, "--alias", ",")
        assert done.returncode == 1 and "--alias" in done.stderr


def test_nothing_sent_is_an_error(tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"at": 5, "prompt": "late", "answer_tokens": 1}\n')
    with scripted(whole) as server:
        done = load(server.port, "--replay", str(trace), "--duration", "1")
    assert done.returncode == 1 and "nothing was sent" in done.stderr


def test_what_a_server_says_drives_no_terminal():
    said = '{"error":{"message":"\\u001b[31mred\\n"}}'
    with scripted(lambda handler: handler.answer(500, said)) as server:
        done = load(server.port, "--requests", "1", "--clients", "1", "--alias", "\x1b[2Jm")
        assert done.returncode == 1 and "\x1b" not in done.stdout
        assert "status 500: \\x1b[31mred\\n" in done.stdout and "\\x1b[2Jm" in done.stdout
    with scripted(key="\x1b") as server:
        server.RequestHandlerClass = type("Rude", (Handler,), {"do_GET": lambda self: self.answer(401, said)})
        done = load(server.port)
        assert "\x1b" not in done.stderr and "\\x1b[31mred" in done.stderr


def test_errors_of_a_trace_speak_of_its_line(tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"at": }\n')
    done = load(1, "--replay", str(trace))
    assert done.returncode == 2 and "line 1: the line is not valid JSON" in done.stderr and "request body" not in done.stderr


def test_open_loop_counts_from_the_time_that_was_meant():
    """What is due does not wait for answers; that what waits counts from its time: tests/server/load/test_load.c."""
    def slow(handler):
        time.sleep(0.3)
        whole(handler)
    with scripted(slow) as server:
        found = figures(server.port, "--rate", "50", "--requests", "20")
    assert found["requests"]["answered"] == 20 and found["answer_ms"]["min"] >= 300 and found["peak_streams"] > 1


def test_the_answer_is_part_of_the_next_turn():
    with scripted(whole) as server:
        figures(server.port, "--workload", "agent", "--turns", "2", "--prefix-tokens", "5", "--think-ms", "0", "--requests", "2", "--clients",
                "1", "--ignore-eos=off")
        first, second = (body["messages"] for body in server.bodies)
        assert "ignore_eos" not in server.bodies[0]
    assert [message["role"] for message in second] == ["user", "assistant", "user"]
    assert second[:1] == first and second[1]["content"] == "abc"


def test_a_key_and_a_unix_socket(tmp_path):
    path = str(tmp_path / "s")
    with Scripted(path, whole, key="k1"):
        found = figures(1, "--host", f"unix:{path}", "--requests", "1", env={"LONGWAVE_API_KEY": "k1"})
        assert found["server"] == f"unix:{path}" and found["model"] == "fake"
        done = load(1, "--host", f"unix:{path}", "--api-key", "k2")
        assert done.returncode == 1 and "401" in done.stderr and "no key, no model" in done.stderr


def test_nobody_listens():
    done = load(free_port())
    assert done.returncode == 1 and done.stdout == "" and "/v1/models" in done.stderr and "refused" in done.stderr
    found = figures(free_port(), "--alias", "x", "--requests", "2", "--clients", "1", status=1)
    assert found["requests"]["failed"] == 2 and "refused" in found["errors"][0]["text"]


@pytest.mark.parametrize("options, words", [
    (("--prompt-tokens", "0"), "--prompt-tokens"),
    (("--answer-tokens", "x"), "--answer-tokens"),
    (("--prefix-tokens", "exp"), "--prefix-tokens"),
    (("--tool-tokens", "9-8"), "--tool-tokens"),
    (("--turns", "0"), "--turns"),
    (("--think-ms", "-1"), "--think-ms"),
    (("--workload", "chatty"), "random, prefix, agent"),
    (("--clients", "16385"), "--clients"),
    (("--rate", "-1"), "--rate"),
    (("--rate", "1e-7"), "--rate"),
    (("--replay", "/nonexistent"), "/nonexistent"),
    (("--replay", "/nonexistent", "--rate", "1"), "--rate"),
    (("--model", "x.gguf"), "'bench serve' has no option"),
    (("--cliants", "1"), "--clients"),
])
def test_what_is_wrong_is_named(options, words):
    done = load(1, *options)
    assert done.returncode == 2 and done.stdout == ""
    assert words in done.stderr
