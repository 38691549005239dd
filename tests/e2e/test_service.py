# SPDX-License-Identifier: Apache-2.0
"""The service manager's side: a socket that is passed, states, the watchdog."""
import contextlib
import os
import socket
import subprocess
import sys
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
def managed(model, tmp_path, watchdog_usec=300_000, n_sockets=1):
    """(server, datagram socket that it notifies); the listening socket is made here."""
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(tmp_path / "notify"))
    notify.settimeout(20)
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(n_sockets)]
    port = listening[0].getsockname()[1]
    command = [sys.executable, "-c", PASS_SOCKET, str(listening[0].fileno()), str(longwave_server.BINARY), "serve",
               "-m", str(model), "--port", "1", "--log-level", "warn"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=[listening[0].fileno()],
        env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "LISTEN_FDS": str(n_sockets),
             "WATCHDOG_USEC": str(watchdog_usec)})
    try:
        yield process, port, notify
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(20)
        for s in (*listening, notify):
            s.close()


def test_a_passed_socket_states_and_watchdog(tiny_path, tmp_path):
    with managed(tiny_path, tmp_path) as (process, port, notify):
        assert notify.recv(1000) == b"READY=1"
        server = longwave_server.Server.attach(process, port)
        assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 2})[0] == 200
        began = time.monotonic()
        for _ in range(5):
            assert notify.recv(1000).startswith((b"WATCHDOG=1", b"STATUS="))
        assert time.monotonic() - began < 2
        assert server.stop() == 0
        while (state := notify.recv(1000)) != b"STOPPING=1":
            assert state.startswith((b"WATCHDOG=1", b"STATUS="))


def test_a_wrong_socket_is_refused(tiny_path, tmp_path):
    with managed(tiny_path, tmp_path, n_sockets=2) as (process, _, _):
        assert process.wait(20) == 1
