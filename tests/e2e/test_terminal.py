# SPDX-License-Identifier: Apache-2.0
"""What every subcommand owes its standard streams: output that is lost is an error, closed ones stay closed."""
import os
import subprocess

import pytest

import longwave_server
from longwave_server import BINARY


@pytest.mark.parametrize("command", [
    ["tokenize", "-m", "MODEL", "-p", "hello"], ["generate", "-m", "MODEL", "-p", "hello", "-n", "3"],
    ["generate", "-m", "MODEL", "-p", "hello", "-n", "3", "--json"], ["inspect", "-m", "MODEL"], ["--help"],
    ["--version"], ["--options-reference"], ["serve", "--help"]])
@pytest.mark.parametrize("closed", [True, False])
def test_lost_output_is_an_error(tiny_path, command, closed):
    arguments = [str(BINARY), *(str(tiny_path) if word == "MODEL" else word for word in command)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                              preexec_fn=(lambda: os.close(1)) if closed else None)
    assert done.returncode == 1 and "cannot write" in done.stderr


def test_help_tells_what_is_on_and_how_to_turn_it_off():
    told = subprocess.run([BINARY, "serve", "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    lines = {line.split()[0]: line for line in told.splitlines() if line.startswith("      --")}
    assert lines["--page"].endswith("[on; --page=off]") and "[on" not in lines["--baselines"]


def test_a_server_without_standard_streams_logs_into_nothing_else(tiny_path):
    port = longwave_server.free_port()
    process = subprocess.Popen([BINARY, "serve", "-m", tiny_path, "--port", str(port), "--log-level", "debug"],
                               preexec_fn=lambda: [os.close(fd) for fd in range(3)])
    server = longwave_server.Server.attach(process, port)
    try:
        assert server.raw(b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400")  # no Host, which is logged
        names = [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in range(3)]
        assert names == ["/dev/null"] * 3
        assert server.status("/health") == 200
    finally:
        assert server.stop() == 0
