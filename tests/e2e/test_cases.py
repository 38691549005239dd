# SPDX-License-Identifier: Apache-2.0
"""Inputs that broke servers like this one. Numbers are those of the project's list of cases."""
import json

import pytest

import longwave_server

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "Hello"}]
ALPHABET = "Here is the English alphabet: ABC"


def text_of(frames):
    return "".join(choice.get("text") or choice.get("delta", {}).get("content") or ""
                   for frame in frames for choice in frame["choices"])


@pytest.mark.parametrize("seed", range(8))
def test_1_dead_bytes_become_replacement_characters(smollm2, seed):
    fields = {"messages": USER, "temperature": 1.5, "top_k": 100, "max_tokens": 48, "seed": seed}
    status, whole = smollm2.post(CHAT, fields)
    assert status == 200 and whole["choices"][0]["finish_reason"] in ("stop", "length")
    frames = smollm2.frames(CHAT, fields)
    assert text_of(frames) == whole["choices"][0]["message"]["content"]


def test_1_tokens_that_are_no_text(tiny):
    """Random weights at a high temperature give mostly lone bytes."""
    fields = {"prompt": "the", "temperature": 2, "max_tokens": 200, "seed": 5, "ignore_eos": True}
    status, whole = tiny.post(COMPLETIONS, fields)
    assert status == 200 and "\ufffd" in whole["choices"][0]["text"]
    assert text_of(tiny.frames(COMPLETIONS, fields)) == whole["choices"][0]["text"]
    assert tiny.status("/health") == 200


def test_2_no_part_of_a_stop_string_is_sent(smollm2):
    fields = {"prompt": ALPHABET, "temperature": 0, "max_tokens": 24}
    free = smollm2.post(COMPLETIONS, fields)[1]["choices"][0]["text"]
    for stop in ("DEFGHIJ", free[3:9], free[-3:]):
        stopped = {**fields, "stop": stop}
        whole = smollm2.post(COMPLETIONS, stopped)[1]["choices"][0]
        assert whole["text"] == free.split(stop)[0]
        assert whole["finish_reason"] == ("stop" if stop in free else "length")
        assert text_of(smollm2.frames(COMPLETIONS, stopped)) == whole["text"]
    shown = smollm2.post(COMPLETIONS, {**fields, "stop": [free[3:9]], "include_stop_str_in_output": True})[1]
    assert shown["choices"][0]["text"] == free[:free.index(free[3:9]) + 6]


@pytest.mark.parametrize("stream", [True, False])
def test_3_a_client_that_leaves_costs_nothing(smollm2, stream):
    cancelled = smollm2.metric("longwave_requests_cancelled_total")
    s = smollm2.open_post(COMPLETIONS, {"prompt": "Once", "max_tokens": 4000, "ignore_eos": True, "stream": stream})
    smollm2.wait_metric("vllm:num_requests_running", lambda value: value == 1)
    s.close()
    smollm2.wait_metric("vllm:num_requests_running", lambda value: value == 0)
    smollm2.wait_metric("longwave_requests_cancelled_total", lambda value: value == cancelled + 1)
    cached = smollm2.metric("longwave_prefix_cache_pages")
    smollm2.wait_metric("longwave_kv_pages", lambda value: value == cached)  # nobody else holds any


def test_4_a_client_that_leaves_during_prefill_stops_it(smollm2):
    read = smollm2.metric("vllm:prompt_tokens_total")
    s = smollm2.open_post(COMPLETIONS, {"prompt": [1000] * 8000, "max_tokens": 4})
    smollm2.wait_metric("vllm:num_requests_running", lambda value: value == 1)
    s.close()
    smollm2.wait_metric("vllm:num_requests_running", lambda value: value == 0)
    assert smollm2.metric("vllm:prompt_tokens_total") - read < 7000


def test_5_a_waiting_client_that_leaves_never_runs():
    server = longwave_server.Server(longwave_server.MODEL, "--max-batch", "1")
    fields = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 150, "ignore_eos": True}
    alone = server.post(COMPLETIONS, fields)[1]
    server.wait_metric("vllm:generation_tokens_total", lambda value: value == 150)  # they come with the engine's next report
    written = server.metric("vllm:generation_tokens_total")
    first = server.open_post(COMPLETIONS, fields)
    server.wait_metric("vllm:num_requests_running", lambda value: value == 1)
    second = server.open_post(COMPLETIONS, {**fields, "stream": True})
    server.wait_metric("longwave_generations_open", lambda value: value == 2)
    second.close()
    answer = b""
    while b'"timings"' not in answer:
        answer += first.recv(65536)
    first.close()
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["choices"] == alone["choices"]
    server.wait_metric("vllm:num_requests_waiting", lambda value: value == 0)
    server.wait_metric("vllm:generation_tokens_total", lambda value: value == written + 150)
    assert server.stop() == 0


@pytest.mark.parametrize("fields", [{"top_k": 1}, {"temperature": 0}, {"top_p": 0}, {"logit_bias": {"1000": -100}}])
def test_10_logprobs_are_finite(smollm2, fields):
    answer = smollm2.post(CHAT, {"messages": USER, "max_tokens": 4, "logprobs": True, "top_logprobs": 20, **fields})[1]
    for token in answer["choices"][0]["logprobs"]["content"]:
        assert -9999 <= token["logprob"] <= 0 and len(token["top_logprobs"]) == 20
        assert bytes(token["bytes"]).decode(errors="replace") == token["token"] or token["token"].startswith("\\x")


def test_11_logprobs_forms(smollm2):
    chat = smollm2.post(CHAT, {"messages": USER, "max_tokens": 3, "logprobs": True})[1]["choices"][0]
    assert all(token["top_logprobs"] == [] for token in chat["logprobs"]["content"])
    fields = {"prompt": ALPHABET, "max_tokens": 5, "logprobs": 1, "temperature": 0}
    whole = smollm2.post(COMPLETIONS, fields)[1]["choices"][0]
    assert set(whole["logprobs"]) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert "".join(whole["logprobs"]["tokens"]) == whole["text"]
    assert [len(top) for top in whole["logprobs"]["top_logprobs"]] == [1] * 5
    joined = {key: [] for key in whole["logprobs"]}
    for frame in smollm2.frames(COMPLETIONS, fields):
        for key, items in (frame["choices"][0]["logprobs"] or {}).items():
            joined[key] += items
    assert joined == whole["logprobs"]


def test_11_echo_with_logprobs(smollm2):
    choice = smollm2.post(COMPLETIONS, {"prompt": ALPHABET, "max_tokens": 0, "logprobs": 1, "echo": True})[1]["choices"][0]
    assert choice["text"] == ALPHABET == "".join(choice["logprobs"]["tokens"])
    assert choice["logprobs"]["token_logprobs"][0] is None and choice["finish_reason"] == "length"
    assert all(value <= 0 for value in choice["logprobs"]["token_logprobs"][1:])
    offsets = choice["logprobs"]["text_offset"]
    assert offsets[0] == 0 and all(ALPHABET[offset:].startswith(token)
                                   for offset, token in zip(offsets, choice["logprobs"]["tokens"]))


@pytest.mark.parametrize("path, fields, param", [
    (CHAT, {"messages": USER, "logit_bias": {"49152": 1}}, "logit_bias"),
    (CHAT, {"messages": USER, "logit_bias": {"-1": 1}}, "logit_bias"),
    (CHAT, {"messages": USER, "stop_token_ids": [49152]}, "stop_token_ids[0]"),
    (CHAT, {"messages": USER, "stop_token_ids": [-1]}, "stop_token_ids[0]"),
    (COMPLETIONS, {"prompt": [49152]}, "prompt[0]"),
    (COMPLETIONS, {"prompt": [[5], [5, -1]]}, "prompt[1][1]"),
])
def test_12_ids_beyond_the_vocabulary(smollm2, path, fields, param):
    status, error = smollm2.error(path, fields)
    assert status == 400 and error["param"] == param


def test_13_14_streams_end_once_and_tell_usage_when_asked(tiny):
    for options in (None, {"include_usage": False}, {"include_usage": True}):
        frames = tiny.frames(CHAT, {"messages": USER, "max_tokens": 5, **({"stream_options": options} if options else {})})
        asked = bool(options and options["include_usage"])
        assert [frame["choices"] == [] for frame in frames] == [False] * (len(frames) - asked) + [True] * asked
        assert all(("usage" in frame) == asked for frame in frames)
        if asked:
            assert frames[-1]["usage"]["completion_tokens"] == 5
        reasons = [choice["finish_reason"] for frame in frames for choice in frame["choices"]]
        assert reasons[-1] == "length" and set(reasons[:-1]) == {None}


@pytest.mark.parametrize("body, what", [
    (b'{"messages": [{"role": "user", "content": "x"}], "stream": "false"}', "stream"),
    (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": "5"}', "max_tokens"),
    (b"{:", "column 2"), (b"", "empty"), (b"null", "JSON object"), (b"[]", "JSON object"),
    (b'{"messages": 1, "messages": 2}', "duplicate key"),
    (b'{"messages": [{"role": "user", "content": "a\\u0000b"}]}', "NUL"),
    (b'{"messages": [{"role": "user", "content": "a\x00b"}]}', "control character"),
    (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "lone surrogate"),
    (b'{"messages": [{"role": "user", "content": "\xff"}]}', "invalid UTF-8"),
    (b'{"messages": ' + b"[" * 60000, "too deep"),
    (b'{"temperature": 1e999, "messages": []}', "range"),
    (b'{"temperature": NaN, "messages": []}', "not valid JSON"),
])
def test_15_bad_bodies(tiny, body, what):
    status, _, answer = tiny.request("POST", CHAT, body)
    assert status == 400 and what in json.loads(answer)["error"]["message"]


def test_15_large_bodies(tiny):
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 104857600\r\n\r\n"
    assert tiny.raw(head).startswith(b"HTTP/1.1 413")
    assert tiny.raw(head + b"x" * (100 << 20)).startswith(b"HTTP/1.1 413")
    chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    chunked = head.replace(b"Content-Length: 104857600", b"Transfer-Encoding: chunked")
    assert tiny.raw(chunked + chunk * 40 + b"0\r\n\r\n").startswith(b"HTTP/1.1 413")
    assert tiny.status("/health") == 200


@pytest.mark.parametrize("stream", [True, False])
def test_16_prompts_over_the_context(smollm2, stream):
    for path, fields in ((COMPLETIONS, {"prompt": [1000] * 14429}), (CHAT, {"messages": [{"role": "user", "content": " a" * 14429}]})):
        status, error = smollm2.error(path, {**fields, "stream": stream})
        assert status == 400 and error["code"] == "context_length_exceeded" and "8192" in error["message"]
    # Far beyond it nobody counts tokens.
    for n in (1_000_000, 3_000_000):
        for path, fields in ((COMPLETIONS, {"prompt": " a" * n}), (CHAT, {"messages": [{"role": "user", "content": " a" * n}]})):
            status, error = smollm2.error(path, {**fields, "stream": stream})
            assert status == 400 and error["code"] == "context_length_exceeded" and "bytes" in error["message"]
    assert "14429" in smollm2.error(COMPLETIONS, {"prompt": [1000] * 14429})[1]["message"]


def test_17_the_template_decides_about_turns(smollm2, tiny_path, tmp_path):
    turns = [*USER, *USER, {"role": "system", "content": "Be brief."}, *USER]
    assert smollm2.post("/apply-template", {"messages": turns})[0] == 200
    assert smollm2.post(CHAT, {"messages": turns, "max_tokens": 1})[0] == 200
    data = tiny_path.read_bytes()
    at = data.index(b"tokenizer.chat_template") + len(b"tokenizer.chat_template") + 4  # behind the type of the value
    n_bytes = int.from_bytes(data[at:at + 8], "little")
    new = b"{{ raise_exception('turns must alternate') }}".ljust(n_bytes)
    strange = tmp_path / "strange.gguf"
    strange.write_bytes(data[:at + 8] + new + data[at + 8 + n_bytes:])
    server = longwave_server.Server(strange)
    try:
        for path in (CHAT, "/apply-template"):
            status, error = server.error(path, {"messages": turns})
            assert status == 400 and error["code"] == "template_error" and "turns must alternate" in error["message"]
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("head, status", [
    (b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"400"),
    (b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ", b"400"),
    (b"Transfer-Encoding: gzip\r\n\r\n", b"501"),
])
def test_26_ambiguous_framing(tiny, head, status):
    answer = tiny.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + head)
    # libmicrohttpd 1.0 refuses some of it by itself, with 400.
    assert answer.startswith((b"HTTP/1.1 " + status, b"HTTP/1.1 400")) and b"Connection: close" in answer


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("how", ["close", "abort"])
@pytest.mark.parametrize("state", ["waiting", "prefill", "decode"])
def test_3_4_5_ends_from_every_state(tiny_path, tmp_path, state, how, stream):
    """One place to run in: what is cancelled never shows up again, its pages are free, and the next one runs."""
    server = longwave_server.Server(tiny_path, "--max-batch", "1", "--prefill-chunk", "16", "--log-format", "json",
                                    log=tmp_path / "log")
    long = {"prompt": "the", "max_tokens": 4000, "ignore_eos": True}
    bodies = {"waiting": {"prompt": "a", "max_tokens": 5}, "decode": long,
              "prefill": {"prompt": [300 + i % 50 for i in range(4000)], "max_tokens": 5}}
    first = server.open_post(COMPLETIONS, long) if state == "waiting" else None
    if first:
        server.wait_metric("vllm:num_requests_running", lambda value: value == 1)
    ids = server.metric("longwave_generations_open")
    s = server.open_post(COMPLETIONS, {**bodies[state], "stream": stream, "request_id": "mine"})
    server.wait_metric("longwave_generations_open", lambda value: value == ids + 1)
    if state == "decode":
        server.wait_metric("vllm:generation_tokens_total", lambda value: value > 0)
    if how == "close":
        s.close()
    else:
        assert server.post("/v1/abort", {"request_id": "mine"})[1] == {"aborted": 1}
        answer = s.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200" if stream else b"HTTP/1.1 499")
    server.wait_log("request")
    line = next(line for line in server.log_lines("request") if line.get("request_id") == "mine")
    assert line["end"] == ("client_gone" if how == "close" else "aborted")
    if first:
        assert line["completion_tokens"] == 0
        first.close()
    reason = "client_gone" if how == "close" else "abort"
    server.wait_metric("vllm:num_requests_running", lambda value: value == 0)
    assert server.metric("vllm:num_requests_waiting") == 0 and server.metric("longwave_generations_open") == 0
    page = server.request("GET", "/metrics")[2].decode()
    assert f'reason="{reason}"}} {1 + bool(first and how == "close")}\n' in page
    assert server.post(COMPLETIONS, {"prompt": "the", "max_tokens": 3})[0] == 200
    s.close()
    assert server.stop() == 0


def test_n_choices_come_interleaved_and_equal_the_whole(smollm2):
    fields = {"prompt": "Once upon a time", "n": 4, "max_tokens": 24, "temperature": 1, "seed": 11, "ignore_eos": True}
    whole = smollm2.post(COMPLETIONS, fields)[1]
    frames = smollm2.frames(COMPLETIONS, fields)
    order = [frame["choices"][0]["index"] for frame in frames if frame["choices"][0]["text"]]
    assert sorted(set(order)) == [0, 1, 2, 3] and sum(a != b for a, b in zip(order, order[1:])) > 20
    for i, choice in enumerate(whole["choices"]):
        mine = [frame["choices"][0] for frame in frames if frame["choices"][0]["index"] == i]
        assert "".join(part["text"] for part in mine) == choice["text"]
        assert [part["finish_reason"] for part in mine if part["finish_reason"]] == ["length"]
    assert len({choice["text"] for choice in whole["choices"]}) == 4
    assert whole["usage"]["completion_tokens"] == 96


def test_a_deadline_ends_waiting_and_running(tiny_path):
    server = longwave_server.Server(tiny_path, "--max-batch", "1")
    fields = {"prompt": "the", "n": 64, "max_tokens": 4000, "ignore_eos": True, "timeout_s": 1}
    first = server.open_post(COMPLETIONS, {**fields, "timeout_s": 600})
    server.wait_metric("vllm:num_requests_running", lambda value: value == 1)
    status, error = server.error(COMPLETIONS, fields)
    assert status == 504 and error["code"] == "timeout"
    first.close()
    server.wait_metric("vllm:num_requests_running", lambda value: value == 0)
    assert server.error(COMPLETIONS, fields)[0] == 504
    status, _, answer = server.request("POST", COMPLETIONS, {**fields, "stream": True})
    assert status == 200 and b'"code":"timeout"' in answer and answer.endswith(b"data: [DONE]\n\n")
    assert server.stop() == 0


def test_progress_and_cache_are_told(smollm2):
    turns = [{"role": "user", "content": "List the planets, slowly. " * 30}]
    fields = {"messages": turns, "max_tokens": 8, "temperature": 0}
    first = smollm2.post(CHAT, fields)[1]
    assert first["longwave"]["cache"]["matched"] == first["usage"]["prompt_tokens_details"]["cached_tokens"]
    second = smollm2.post(CHAT, fields)[1]
    assert second["choices"] == first["choices"]
    assert second["longwave"]["cache"]["matched"] == second["usage"]["prompt_tokens"] - 1
    assert second["longwave"]["cache"]["divergence"] is None
    other = [{"role": "user", "content": turns[0]["content"][:260] + "X" + turns[0]["content"][261:]}]
    third = smollm2.post(CHAT, {**fields, "messages": other})[1]["longwave"]["cache"]
    divergence = third["divergence"]
    assert divergence["reason"] == "differs" and divergence["message"] == 0 and 240 <= divergence["character"] <= 260
    assert 0 < third["matched"] <= divergence["token"]
    status, _, answer = smollm2.request("POST", CHAT, {**fields, "stream": True, "cache_salt": "new",
                                                       "longwave": {"progress": True}})
    frames = [json.loads(line[6:]) for line in answer.decode().split("\n\n") if line.startswith("data: {")]
    steps = [frame["longwave"]["progress"] for frame in frames if "progress" in frame.get("longwave", {})]
    assert status == 200 and steps[0]["cached"] == 0 and steps[-1]["processed"] == steps[-1]["total"]
    assert [step["processed"] for step in steps] == sorted(step["processed"] for step in steps)
    assert frames[-1]["longwave"]["cache"]["matched"] == 0


def test_no_pass_has_more_rows_than_asked_for(tiny_path):
    """Fewer than the blocks that selecting prompts are read in."""
    server = longwave_server.Server(tiny_path, "--max-batch-tokens", "16", "--max-stall-ms", "60000")
    try:
        fields = {"prompt": [300 + i % 50 for i in range(200)], "max_tokens": 1, "longwave": {"progress": True}}
        steps = [frame["longwave"]["progress"]["processed"] for frame in server.frames(COMPLETIONS, fields)
                 if "progress" in frame.get("longwave", {})]
        assert steps[-1] == 200 and max(b - a for a, b in zip([0, *steps], steps)) == 16
    finally:
        assert server.stop() == 0


# 24: one word again and again, over keys of few bits. This model goes on with a digit, here as in llama.cpp.

def again_and_again(kv_type):
    server = longwave_server.Server(longwave_server.MODEL, "--kv-type", kv_type, "--ctx", "1024")
    try:
        fields = {"prompt": "hello" + " hello" * 799, "max_tokens": 20, "temperature": 0, "logprobs": 1, "ignore_eos": True}
        answer = server.post(COMPLETIONS, fields)[1]
        assert server.metric("vllm:corrupted_requests_total") == 0
        return answer["choices"][0]
    finally:
        assert server.stop() == 0


def test_24_one_word_again_and_again():
    wanted = again_and_again("f32")
    for kv_type in ("f8", "int8", "int4"):
        got = again_and_again(kv_type)
        logprobs = got["logprobs"]["token_logprobs"]
        assert len(logprobs) == 20 and all(-10 < logprob <= 0 for logprob in logprobs)
        assert kv_type == "int4" or got["logprobs"]["tokens"][0] == wanted["logprobs"]["tokens"][0] == " "
        assert kv_type == "int4" or abs(logprobs[0] - wanted["logprobs"]["token_logprobs"][0]) < 0.2


def test_24_one_token_ten_thousand_times(tmp_path):
    model = longwave_server.make_tiny_model(tmp_path / "long.gguf", "context=16384", "head_dim=32")
    for kv_type in ("f8", "int8", "int4"):
        server = longwave_server.Server(model, "--kv-type", kv_type)
        try:
            fields = {"prompt": [300] * 10_000, "max_tokens": 8, "temperature": 0, "logprobs": 1, "ignore_eos": True}
            choice = server.post(COMPLETIONS, fields)[1]["choices"][0]
            assert len(choice["logprobs"]["token_logprobs"]) == 8 and all(-30 < value <= 0 for value in choice["logprobs"]["token_logprobs"])
            assert server.metric("vllm:corrupted_requests_total") == 0
        finally:
            assert server.stop() == 0
