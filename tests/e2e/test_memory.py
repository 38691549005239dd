# SPDX-License-Identifier: Apache-2.0
"""Memory at rest: what requests of any kind took is given back to the byte."""
import os
import subprocess

import longwave_server

CHAT, COMPLETIONS, HEAP = "/v1/chat/completions", "/v1/completions", "longwave_heap_bytes"
ASK = [{"role": "user", "content": "the weather"}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
LONG = {"prompt": [9] * 900, "cache_salt": "grain"}
GENERATIONS = [
    {"messages": ASK, "max_tokens": 20},
    {"messages": ASK, "max_tokens": 20, "n": 3, "logprobs": True, "top_logprobs": 3, "seed": 1},
    {"messages": ASK, "max_tokens": 20, "tools": [TOOL], "tool_choice": "required"},
    {"messages": ASK, "max_tokens": 20, "response_format": SCHEMA, "stop": ["}"], "request_id": "mine"},
    {"prompt": ["the", "of"], "max_tokens": 70, "ignore_eos": True, "echo": True, "timeout_s": 60},
    {"prompt": [[10 + i] * 900 for i in range(6)], "max_tokens": 200, "ignore_eos": True},  # more than there is memory for
]
REFUSED = [
    (CHAT, {"messages": ASK, "temperature": "hot"}), (CHAT, {"messages": 3}), (CHAT, b"{"), ("/v1/nothing", {}),
    (COMPLETIONS, {"prompt": [9] * 5000}), (CHAT, {"messages": ASK, "response_format": {"type": "json_schema"}}),
    ("/v1/sessions/none/restore", {}),
]
OTHERS = [
    ("POST", "/tokenize", {"content": "the weather"}), ("POST", "/detokenize", {"tokens": [9, 10]}),
    ("POST", "/apply-template", {"messages": ASK}), ("GET", "/v1/models", None), ("GET", "/openapi.json", None),
    ("POST", COMPLETIONS, {**LONG, "max_tokens": 2}), ("POST", "/v1/sessions/kept/save", LONG), ("POST", "/v1/sessions/kept/restore", {}),
    ("DELETE", "/v1/sessions/kept", None), ("POST", "/v1/abort", {"request_id": "nobody"}),
]


def path_of(body):
    return CHAT if "messages" in body else COMPLETIONS


def leave(server, body):
    """A client that reads a little of its stream."""
    s = server.open_post(path_of(body), {**body, "stream": True, "max_tokens": 1000, "ignore_eos": True})
    s.settimeout(60)
    assert b" 200 " in s.recv(100)
    s.close()


def of_every_kind(server):
    for body in GENERATIONS:
        path = path_of(body)
        assert server.post(path, {**body, "temperature": 0})[0] == 200
        server.frames(path, {**body, "temperature": 0, "stream_options": {"include_usage": True}})
        leave(server, {**body, "temperature": 0})
    for path, body in REFUSED:
        assert server.request("POST", path, body)[0] >= 400, body
    server.wait_idle()
    for method, path, body in OTHERS:
        assert server.request(method, path, body)[0] == 200, path


def test_nothing_is_left_of_any_request(tiny_path, tmp_path):
    """
    The same requests again and again. What is kept on purpose is there soon: grammars, answers' tokens, room for as many as were
    once served at a time. A loss grows with each round.
    """
    server = longwave_server.Server(tiny_path, "--session-dir", str(tmp_path), "--host-memory", "1M")
    try:
        sizes = []
        while len(sizes) < 2 or sizes[-1] != sizes[-2]:
            assert len(sizes) < 10, sizes
            of_every_kind(server)
            server.wait_idle()
            sizes.append(server.metric(HEAP))
        assert sizes[0] > 1e6 and server.metric("vllm:num_preemptions_total") > 0
    finally:
        assert server.stop() == 0


def test_the_allocator_takes_the_program_s_settings():
    """One arena, where jemalloc is linked: its own statistics say what it took, also beside settings from outside."""
    done = subprocess.run([longwave_server.BINARY, "--version"], capture_output=True, text=True, check=True,
                          env={**os.environ, "MALLOC_CONF": "stats_print:true,stats_print_opts:mdablxe"})
    linked = "libjemalloc" in subprocess.run(["ldd", longwave_server.BINARY], capture_output=True, text=True, check=True).stdout
    assert ("opt.narenas: 1\n" in done.stdout + done.stderr) == linked
