# SPDX-License-Identifier: Apache-2.0
"""What goes wrong around a server: its configuration, its disk, its clock, its model file. Each time a clear message, and a
state that somebody can tell."""
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import threading
import time

import pytest

import longwave_server

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
CLOCK_JUMP = longwave_server.BINARY.parent.parent / "tests" / "support" / "libclock_jump.so"


def start(model, *options, log, **popen):
    """A server in its own way; its log is JSON."""
    port = longwave_server.free_port()
    with open(log, "wb") as file:
        process = subprocess.Popen([longwave_server.BINARY, "serve", "-m", model, "--port", str(port), "--log-format", "json", *options],
                                   stdin=subprocess.DEVNULL, stderr=file, **popen)
    server = longwave_server.Server.attach(process, port)
    server.log_path = log
    return server


# ---- every key wrong in turn ----

def options_of_files():
    """(section, name, values) of each option that serve takes from a file, from the table of options itself."""
    text = subprocess.run([longwave_server.BINARY, "--options-reference"], capture_output=True, text=True, check=True).stdout
    section = None
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:].strip("[]") if line.startswith("## [") else None
        row = re.match(r"\| `--([a-z0-9-]+)`[^|]* \| ([^|]*) \| [^|]* \| ([^|]*) \|", line)
        if row and section and "serve" in row[3]:
            yield section, row[1].replace("-", "_"), row[2]


# Of texts only their reader knows what is wrong.
WRONG_TEXTS = {
    "model": ["", "/none.gguf", "/dev/null", "/"],
    "alias": [",", ",".join("abcdefghijklmnopqrstuvwxyz")],
    "device": ["abacus", "cuda:x", "cuda:99"],
    "kv_type": ["f17", "full=f17", "half=f16"],
    "attention": ["nonsense"],
    "roles": ["x", "x=/none", "=x"],
    "host": ["no.such.host.invalid", "unix:" + "x" * 150, "unix:/none/socket"],
    "api_key_file": ["/none", "/dev/null", "credential:none"],
    "session_dir": ["/none", "/dev/null"],
    "cors_origins": ["nonsense"],
    "allowed_hosts": ["a.org:80", "http://a.org"],
    "tool_format": ["nonsense"],
    "reasoning_format": ["nonsense"],
}
# What is said to be there instead.
OFFERED = {"attention": "hip-3k", "tool_format": "hermes", "reasoning_format": "mistral"}


def wrong_values(name, values):
    number = re.fullmatch(r"(number|tokens|size|time|fraction or size), (\S+) to (\S+)", values)
    if values == "text":
        assert name in WRONG_TEXTS, f"which value of '{name}' is wrong?"
        return WRONG_TEXTS[name]
    if not number:
        assert values.startswith("`"), values
        return ["", "nonsense", "7"]
    low, high = int(number[2]), int(number[3])
    return ["", "x", "-1", "1.5.1", "1Q", str(high + 1), "9" * 30] + ([str(low - 1)] if low > 0 and number[1] != "fraction or size" else [])


def test_every_key_wrong_in_turn(tiny_path, tmp_path):
    config = tmp_path / "longwave.conf"
    tried = 0
    for section, name, values in options_of_files():
        for value in wrong_values(name, values):
            lines = {"model": {"model": str(tiny_path)}, "server": {"port": str(longwave_server.free_port())}}
            lines.setdefault(section, {})[name] = value
            config.write_text("".join(f"[{s}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items()) for s, keys in lines.items()))
            done = subprocess.run([longwave_server.BINARY, "serve", "--config", config], capture_output=True, text=True, timeout=60)
            assert done.returncode in (1, 2), (name, value, done.stderr)
            said = done.stderr.splitlines()[-1]
            where = value if name in ("model", "host", "api_key_file") and value else name
            assert name in said.replace("-", "_") or where[:40] in said, (name, value, said)
            assert OFFERED.get(name, "") in said, (name, said)
            tried += 1
    assert tried > 100


# ---- reloads without end ----

def test_a_storm_of_reloads(tiny_path, tmp_path):
    config = tmp_path / "longwave.conf"
    config.write_text("[server]\nmax_output_tokens = 5\n")
    server = start(tiny_path, "--config", str(config), log=tmp_path / "log")
    before = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    answers = []

    def ask():
        for _ in range(40):
            answers.append(server.post(COMPLETIONS, {"prompt": "the", "max_tokens": 3, "temperature": 0, "ignore_eos": True}))

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    while any(client.is_alive() for client in clients):
        config.write_text("[server]\nmax_output_tokens = 4\n")
        server.process.send_signal(signal.SIGHUP)
        config.write_text("[server]\nmax_output_tokens =")  # half written
        server.process.send_signal(signal.SIGHUP)
    config.write_text("[server]\nmax_output_tokens = 7\n")
    server.process.send_signal(signal.SIGHUP)
    assert len(answers) == 160 and all(status == 200 for status, _ in answers)
    assert len({answer["choices"][0]["text"] for _, answer in answers}) == 1
    deadline = time.monotonic() + 10  # the last one counts
    while server.post(COMPLETIONS, {"prompt": "the", "max_tokens": 7})[0] != 200:
        assert time.monotonic() < deadline
    assert server.error(COMPLETIONS, {"prompt": "the", "max_tokens": 8})[0] == 400
    assert server.log_lines("nothing is reloaded") and server.log_lines("reloaded")
    assert len(os.listdir(f"/proc/{server.process.pid}/fd")) <= before + 4  # connections that are about to close
    assert server.stop() == 0


# ---- the clock ----

def test_the_clock_jumps(tiny_path, tmp_path):
    """The machine may be slow, or stand still for a while: what is compared are times before and after."""
    clock = tmp_path / "clock"
    clock.write_text("0")
    server = start(tiny_path, "--request-timeout", "10m", log=tmp_path / "log",
                   env={**os.environ, "LD_PRELOAD": str(CLOCK_JUMP), "LONGWAVE_CLOCK_FILE": str(clock)})
    body = {"prompt": "the", "max_tokens": 400, "temperature": 0, "ignore_eos": True}
    alone = server.post(COMPLETIONS, body)[1]
    day, began = 86400, time.monotonic()
    for seconds in (10 * 365 * day, -40 * 365 * day, 1, -1, 0):
        answers = []
        client = threading.Thread(target=lambda: answers.append(server.post(COMPLETIONS, body)))
        client.start()
        clock.write_text(str(seconds))
        client.join()
        status, answer = answers[0]
        assert status == 200 and answer["choices"] == alone["choices"]
        before = int(time.time())
        created = server.post(COMPLETIONS, {**body, "max_tokens": 1})[1]["created"]
        assert before + seconds <= created <= time.time() + seconds
        timings, idle = answer["longwave"]["timings"], server.metric("longwave_engine_idle_seconds")
        passed = time.monotonic() - began
        assert all(0 <= value <= 1000 * passed for key, value in timings.items() if key.endswith("_ms")), timings
        assert server.status("/readyz") == 200 and idle <= passed
    assert not server.log_lines("the engine has stalled")
    assert server.stop() == 0


# ---- the model file ----

def model_copy(tiny_path, tmp_path):
    path = tmp_path / "model.gguf"
    shutil.copyfile(tiny_path, path)
    return path


def cut(path):
    os.truncate(path, 4096)


def write_over(path):
    data = bytearray(path.read_bytes())
    half = len(data) // 2
    data[half:] = os.urandom(len(data) - half)
    with path.open("r+b") as file:
        file.write(data)


def cut_to_nothing(path):
    os.truncate(path, 0)


@pytest.mark.parametrize("damage", [cut, cut_to_nothing, write_over])
@pytest.mark.parametrize("busy", [True, False])
def test_a_model_file_that_is_damaged_ends_the_server(tiny_path, tmp_path, damage, busy):
    """In band for the open request; a status for the service manager, which starts it anew."""
    path = model_copy(tiny_path, tmp_path)
    server = start(path, log=tmp_path / "log")
    s = None
    if busy:
        s = server.open_post(COMPLETIONS, {"prompt": "the", "n": 64, "max_tokens": 4000, "ignore_eos": True, "stream": True})
        assert s.recv(1000)
    damage(path)
    assert server.process.wait(20) == 1
    line = server.log_lines("ending: ")[-1]
    assert line["level"] == "error" and "in use" in line["msg"]
    if busy:
        answer = b""
        while piece := s.recv(65536):
            answer += piece
        assert b'data: {"error"' in answer and answer.count(b"data: [DONE]") == 1
        s.close()


def test_a_model_file_that_is_replaced_is_served_on(tiny_path, tmp_path):
    path = model_copy(tiny_path, tmp_path)
    server = start(path, log=tmp_path / "log")
    body = {"prompt": "the", "max_tokens": 8, "temperature": 0}
    before = server.post(COMPLETIONS, body)[1]["choices"]
    os.utime(path)  # touched: the same bytes
    time.sleep(1.5)
    other = tmp_path / "other.gguf"
    longwave_server.make_tiny_model(other, "seed=77")
    os.replace(other, path)
    assert "another file now" in server.wait_log(f"'{path}' is")["msg"]
    assert server.post(COMPLETIONS, body)[1]["choices"] == before
    path.unlink()
    time.sleep(1.5)
    assert server.post(COMPLETIONS, body)[1]["choices"] == before and len(server.log_lines(f"'{path}' is")) == 1
    assert server.stop() == 0


# ---- the disk ----

def limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_a_disk_that_takes_no_more(tiny_path, tmp_path):
    """No file may grow beyond 20 kB: a log, and a session, that would. Answers are as before."""
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    server = start(tiny_path, "--session-dir", str(sessions), log=tmp_path / "log", preexec_fn=limit_files)
    prompt = {"prompt": "the sea and the land " * 60}
    answers = {server.post(COMPLETIONS, {**prompt, "max_tokens": 4, "temperature": 0})[1]["choices"][0]["text"] for _ in range(100)}
    assert len(answers) == 1
    assert server.metric("longwave_log_lines_lost_total") > 0 and (tmp_path / "log").stat().st_size <= 20000
    status, error = server.error("/v1/sessions/big/save", prompt)
    assert status == 500 and os.strerror(27) in error["message"] and not list(sessions.iterdir())
    server.post(COMPLETIONS, {"prompt": "a", "max_tokens": 1})
    assert server.post("/v1/sessions/small/save", {"prompt": "a"})[0] in (200, 404)
    assert server.status("/readyz") == 200
    with open(tmp_path / "log", "r+b") as log:  # somebody makes room
        log.truncate(0)
    server.post(COMPLETIONS, {"prompt": "a", "max_tokens": 1})
    assert server.stop() == 0


def test_a_full_log_from_the_start(tiny_path):
    process = subprocess.Popen([longwave_server.BINARY, "serve", "-m", tiny_path, "--port", str(port := longwave_server.free_port())],
                               stdin=subprocess.DEVNULL, stderr=open("/dev/full", "wb"))
    server = longwave_server.Server.attach(process, port)
    assert server.post(COMPLETIONS, {"prompt": "a", "max_tokens": 1})[0] == 200
    assert server.metric("longwave_log_lines_lost_total") > 0
    assert server.stop() == 0
