# SPDX-License-Identifier: Apache-2.0
"""The service manager's side: a socket that is passed, states, the watchdog, keys that it passes."""
import contextlib
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import longwave_server

# As a service manager does between fork and exec.
PASS_SOCKET = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = os.environ["WATCHDOG_PID"] = str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""


@contextlib.contextmanager
def managed(model, tmp_path, *options, watchdog_usec=300_000, n_sockets=1, **environment):
    """(process, port, datagram socket that it notifies); the listening socket is made here."""
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(tmp_path / "notify"))
    notify.settimeout(20)
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(n_sockets)]
    port = listening[0].getsockname()[1]
    command = [sys.executable, "-c", PASS_SOCKET, str(listening[0].fileno()), str(longwave_server.BINARY), "serve",
               "-m", str(model), "--port", "1", "--log-level", "warn", *options]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=[listening[0].fileno()],
        env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "LISTEN_FDS": str(n_sockets),
             "WATCHDOG_USEC": str(watchdog_usec), **environment})
    try:
        yield process, port, notify
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(20)
        for s in (*listening, notify):
            s.close()


def wait_state(notify, wanted):
    """Reads until a message begins with it; returns those before, and it."""
    seen = []
    while not seen or not seen[-1].startswith(wanted):
        seen.append(notify.recv(1000))
    return seen


def test_a_passed_socket_states_and_watchdog(tiny_path, tmp_path):
    with managed(tiny_path, tmp_path, "--alias", "tiny") as (process, port, notify):
        *before, ready = wait_state(notify, b"READY=1")
        assert ready == b"READY=1\nSTATUS=serving 'tiny'" and not any(b"READY" in state for state in before)
        server = longwave_server.Server.attach(process, port)
        assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 2})[0] == 200
        for _ in range(5):
            assert notify.recv(1000).startswith((b"WATCHDOG=1", b"STATUS="))
        assert server.stop() == 0
        assert all(state.startswith((b"WATCHDOG=1", b"STATUS=")) for state in wait_state(notify, b"STOPPING=1")[:-1])


def test_a_name_is_no_message_to_the_service_manager(tiny_path, tmp_path):
    with managed(tiny_path, tmp_path, "--alias", "one\nWATCHDOG=trigger") as (_, _, notify):
        assert wait_state(notify, b"READY=1")[-1] == b"READY=1\nSTATUS=serving 'one'"


def test_connections_wait_while_the_model_loads(tiny_path, tmp_path):
    """The process is stopped before it can load: who connects is answered once it goes on, and never with 503."""
    with managed(tiny_path, tmp_path) as (process, port, notify):
        process.send_signal(signal.SIGSTOP)
        answers = []

        def ask():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/v1/completions", b'{"prompt": "x", "max_tokens": 2}', {"Content-Type": "application/json"})
            answers.append(connection.getresponse().status)
            connection.close()

        clients = [threading.Thread(target=ask) for _ in range(8)]
        for client in clients:
            client.start()
        time.sleep(0.3)
        assert not answers
        process.send_signal(signal.SIGCONT)
        for client in clients:
            client.join()
        assert answers == [200] * 8
        wait_state(notify, b"READY=1")


def test_a_drain_asks_for_time(tiny_path, tmp_path):
    with managed(tiny_path, tmp_path) as (process, port, notify):
        wait_state(notify, b"READY=1")
        server = longwave_server.Server.attach(process, port)
        s = server.open_post("/v1/completions", {"prompt": "x", "n": 32, "max_tokens": 3000, "ignore_eos": True, "stream": True})
        assert s.recv(1000)
        process.send_signal(signal.SIGTERM)
        wait_state(notify, b"STOPPING=1")
        asked = wait_state(notify, b"EXTEND_TIMEOUT_USEC=")[-1]
        assert asked.endswith(b"\nSTATUS=draining, 1 requests open")
        s.close()
        assert process.wait(20) == 0


def test_a_wrong_socket_is_refused(tiny_path, tmp_path):
    with managed(tiny_path, tmp_path, n_sockets=2) as (process, _, _):
        assert process.wait(20) == 1


def test_a_model_that_cannot_answer_is_never_ready(tmp_path):
    """One weight that is no number: the file is well formed, and the first token shows what it is."""
    path = longwave_server.make_tiny_model(tmp_path / "nan.gguf", "context=256", "type=F32")
    told = json.loads(subprocess.check_output([longwave_server.BINARY, "inspect", "-m", path, "--tensors", "--json"]))
    at = next(tensor["offset"] for tensor in told["tensors"] if tensor["name"] == "output_norm.weight")
    data = bytearray(path.read_bytes())
    data[at:at + 4] = struct.pack("<f", float("nan"))
    path.write_bytes(data)
    with managed(path, tmp_path) as (process, _, notify):
        assert process.wait(20) == 1
        notify.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while state := notify.recv(1000):
                assert not state.startswith(b"READY")


def test_keys_from_the_service_manager(tiny_path, tmp_path):
    (tmp_path / "api-keys").write_text("# who may\nme:secret\n")
    options = ("--api-key-file", "credential:api-keys")
    with managed(tiny_path, tmp_path, *options, CREDENTIALS_DIRECTORY=str(tmp_path)) as (process, port, _):
        server = longwave_server.Server.attach(process, port)
        body = {"prompt": "x", "max_tokens": 1}
        assert server.request("POST", "/v1/completions", body)[0] == 401
        assert server.request("POST", "/v1/completions", body, {"Authorization": "Bearer secret"})[0] == 200
    for keys, environment in (("credential:other", {"CREDENTIALS_DIRECTORY": str(tmp_path)}), ("credential:api-keys", {}),
                              ("credential:../api-keys", {"CREDENTIALS_DIRECTORY": str(tmp_path)})):
        done = subprocess.run([longwave_server.BINARY, "serve", "-m", tiny_path, "--port", str(longwave_server.free_port()),
                               "--api-key-file", keys], env={**os.environ, **environment}, capture_output=True, text=True, timeout=20)
        assert done.returncode == 1 and keys.split(":")[1] in done.stderr
