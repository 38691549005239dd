# SPDX-License-Identifier: Apache-2.0
"""Inputs that broke servers like this one, continued: files, tokens, memory and an engine that stands still."""
import concurrent.futures
import ctypes
import os
import pathlib
import random
import struct
import subprocess
import time

import pytest

import longwave_server

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
U32, U64 = struct.Struct("<I"), struct.Struct("<Q")


# 18: hostile files. What each parser says of each byte is a unit test; here the program meets them.

def patched(data, at, number, form):
    return data[:at] + form.pack(number) + data[at + form.size:]


def behind(data, name):
    return data.index(U64.pack(len(name)) + name.encode()) + 8 + len(name)


def with_key(data, name, value):
    """A first key of type u32 more."""
    key = U64.pack(len(name)) + name.encode() + U32.pack(4) + U32.pack(value)
    return patched(data, 16, U64.unpack_from(data, 16)[0] + 1, U64)[:24] + key + data[24:]


def tensor(data):
    """Where the number of dimensions of a matrix stands."""
    return behind(data, "token_embd.weight")


HOSTILE = {
    "tensor count": (lambda d: patched(d, 8, 1 << 60, U64), "tensor"),
    "key count": (lambda d: patched(d, 16, 1 << 60, U64), "key"),
    "string length": (lambda d: patched(d, 24, 1 << 63, U64), "offset"),
    "value type": (lambda d: patched(d, behind(d, "general.architecture"), 77, U32), "general.architecture"),
    "wrong type": (lambda d: patched(d, behind(d, "llama.block_count"), 6, U32), "llama.block_count"),
    "array of another type": (lambda d: patched(d, behind(d, "tokenizer.ggml.token_type") + 4, 6, U32), "tokenizer.ggml.token_type"),
    "alignment 0": (lambda d: with_key(d, "general.alignment", 0), "general.alignment"),
    "alignment 3": (lambda d: with_key(d, "general.alignment", 3), "general.alignment"),
    "alignment 2^31": (lambda d: with_key(d, "general.alignment", 1 << 31), "general.alignment"),
    "a million layers": (lambda d: patched(d, behind(d, "llama.block_count") + 4, 10 ** 6, U32), "block_count"),
    "dimensions": (lambda d: patched(d, tensor(d), 99, U32), "token_embd.weight"),
    "product of dimensions": (lambda d: patched(patched(d, tensor(d) + 4, 1 << 40, U64), tensor(d) + 12, 1 << 40, U64),
                              "token_embd.weight"),
    "tensor type": (lambda d: patched(d, tensor(d) + 20, 999, U32), "token_embd.weight"),
    "offset beyond the end": (lambda d: patched(d, tensor(d) + 24, 1 << 40, U64), "token_embd.weight"),
}


def refusal(path):
    """What is told when it is to be served."""
    done = subprocess.run([longwave_server.BINARY, "serve", "-m", str(path), "--port", str(longwave_server.free_port())],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, (done.returncode, done.stderr)
    return done.stderr


@pytest.mark.parametrize("what", HOSTILE)
def test_18_a_hostile_file_is_refused_by_name(tiny_path, tmp_path, what):
    change, named = HOSTILE[what]
    path = tmp_path / "model.gguf"
    path.write_bytes(change(pathlib.Path(tiny_path).read_bytes()))
    assert named in refusal(path)


def test_18_a_file_that_is_cut_anywhere(tiny_path, tmp_path):
    data = pathlib.Path(tiny_path).read_bytes()
    path = tmp_path / "model.gguf"
    for n in [0, 3, 4, 23, 24, 31, *random.Random(3).sample(range(32, len(data) - 1), 24), len(data) - 1]:
        path.write_bytes(data[:n])
        assert "offset" in refusal(path), n


# 19: tokens. Ids of the reference are in tests/golden/tokens.json, for far more texts.

def test_19_text_special_tokens_and_one_bos(smollm2):
    def ids(**body):
        return smollm2.post("/tokenize", body)[1]["tokens"]

    text = "Hello world! Café déjà vu - 123 😊"
    wanted = [19556, 905, 17, 48031, 2756, 32564, 90, 16739, 386, 101, 731, 216, 33, 34, 35, 40303, 228]
    end = ids(content="<|im_end|>")
    assert ids(content=text) == wanted and len(end) == 1
    assert ids(content="<|im_end|>" + text) == end + wanted
    as_text = ids(content="<|im_end|>", parse_special=False)
    assert len(as_text) > 1 and end[0] not in as_text
    turns = [ids(messages=[{"role": "user", "content": content}]) for content in ("x", "<|im_end|>")]
    begin = ids(content="<|im_start|>")
    assert turns[1].count(end[0]) == turns[0].count(end[0]) and turns[1].count(begin[0]) == turns[0].count(begin[0])


def test_19_one_bos_whoever_writes_it(tiny):
    """A model that begins every text by a token does so once, also where a template or a client has written it."""
    def ids(content):
        return tiny.post("/tokenize", {"content": content, "add_special": True})[1]["tokens"]

    prompt = tiny.post(COMPLETIONS, {"prompt": "the", "max_tokens": 1})[1]["usage"]["prompt_tokens"]
    assert prompt == len(ids("the"))


# 20, 22: memory. Bits of answers under pressure are compared by test_same_answer.py.

def test_20_uneven_sequences_leave_no_page_behind(tiny_path):
    """Three rounds of 60 requests over memory for one context; after each the whole of it can be had again."""
    server = longwave_server.Server(tiny_path, "--ctx", "1024", "--host-memory", "1M", "--max-queue", "40")
    dice = random.Random(20)
    try:
        for _ in range(3):
            def ask(body):
                return server.post(COMPLETIONS, body)[0]
            bodies = [{"prompt": [300 + dice.randrange(50) for _ in range(dice.choice((3, 60, 250, 700)))],
                       "max_tokens": dice.choice((1, 20, 200)), "ignore_eos": True} for _ in range(60)]
            with concurrent.futures.ThreadPoolExecutor(50) as pool:
                statuses = list(pool.map(ask, bodies))
            assert set(statuses) <= {200, 429} and statuses.count(200) >= 40
            server.wait_idle()
            assert ask({"prompt": [301] * 900, "max_tokens": 100, "ignore_eos": True}) == 200
    finally:
        assert server.stop() == 0


def test_what_is_kept_for_later_has_a_limit(tiny_path):
    """The last conversation is there, what came before has gone, and all that is kept is within the limit."""
    server = longwave_server.Server(tiny_path, "--ctx", "1024", "--cache-memory", "256K")
    try:
        bodies = [{"prompt": [300 + i % 50] * 200, "max_tokens": 20, "ignore_eos": True} for i in range(20)]
        cached = [server.post(COMPLETIONS, body)[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
                  for body in [*bodies, bodies[-1], bodies[0]]]
        assert cached[-2:] == [199, 0]
        server.wait_idle()
        assert 0 < server.metric("longwave_kv_idle_bytes") <= 256 << 10
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("swap", ["0", "16M"])
def test_22_two_that_fit_singly_both_finish(tiny_path, swap):
    server = longwave_server.Server(tiny_path, "--ctx", "1024", "--host-memory", "1M", "--swap-memory", swap, "--cache", "off")
    try:
        bodies = [{"prompt": [300 + i] * 60, "max_tokens": 900, "ignore_eos": True} for i in range(6)]
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda body: server.post(COMPLETIONS, body), bodies))
        assert all(status == 200 and answer["usage"]["completion_tokens"] == 900 for status, answer in answers)
        assert server.metric("vllm:num_preemptions_total") > 0
        server.wait_idle()
    finally:
        assert server.stop() == 0


# 21: a long prompt beside answers.

def test_21_answers_go_on_beside_a_long_prompt(tmp_path):
    """What is counted is what happens while the prompt is read, however long that takes."""
    model = longwave_server.make_tiny_model(tmp_path / "long.gguf", "context=40000")
    server = longwave_server.Server(model, "--max-batch", "4")
    try:
        beside = server.open_post(COMPLETIONS, {"prompt": "the", "max_tokens": 30_000, "ignore_eos": True})
        server.wait_metric("vllm:generation_tokens_total", lambda value: value > 5)
        began = server.metric("vllm:generation_tokens_total")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            long = pool.submit(server.post, COMPLETIONS, {"prompt": [300 + i % 50 for i in range(32_000)], "max_tokens": 1})
            slowest, n = 0.0, 0
            while not long.done():
                for path in ("/health", "/metrics"):
                    asked = time.monotonic()
                    assert server.status(path) == 200
                    slowest = max(slowest, time.monotonic() - asked)
                n += 1
                time.sleep(0.02)
            status, answer = long.result()
        assert status == 200 and answer["usage"]["prompt_tokens"] == 32_000
        assert server.metric("vllm:generation_tokens_total") - began > 20
        assert n > 3 and slowest < 1, "milliseconds, but not on a machine that does other work"
        beside.close()
        server.wait_idle()
    finally:
        assert server.stop() == 0


# 25: an engine that stands still, since its thread is held from outside as a debugger does it.

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000


def busiest_thread(pid):
    def ticks(tid):
        fields = pathlib.Path(f"/proc/{pid}/task/{tid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    tids = [int(tid) for tid in os.listdir(f"/proc/{pid}/task") if int(tid) != pid]
    return max(tids, key=ticks)


def test_25_a_hung_engine_is_told_and_may_go_on(tiny_path, tmp_path):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    server = longwave_server.Server(tiny_path, "--threads", "1", "--log-format", "json", log=tmp_path / "log")
    try:
        held = server.open_post(COMPLETIONS, {"prompt": "the", "max_tokens": 4000, "ignore_eos": True})
        server.wait_metric("vllm:generation_tokens_total", lambda value: value > 200)
        tid = busiest_thread(server.process.pid)
        assert libc.ptrace(PTRACE_SEIZE, tid, None, None) == 0, os.strerror(ctypes.get_errno())
        assert libc.ptrace(PTRACE_INTERRUPT, tid, None, None) == 0
        os.waitpid(tid, WALL)
        assert server.status("/livez") == 200
        server.wait_log("the engine has stalled")
        assert server.status("/livez") == 503 and server.status("/readyz") == 503
        assert server.status("/metrics") == 200
        assert libc.ptrace(PTRACE_DETACH, tid, None, None) == 0
        server.wait_log("the engine goes on")
        assert server.status("/livez") == 200 and server.status("/readyz") == 200
        held.close()
        server.wait_idle()
        assert server.post(COMPLETIONS, {"prompt": "the", "max_tokens": 3})[0] == 200
    finally:
        assert server.stop() == 0
