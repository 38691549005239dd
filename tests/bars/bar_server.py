# SPDX-License-Identifier: Apache-2.0
"""What the bars share: a server on a free port of the loopback address, and requests to it."""
import contextlib
import http.client
import json
import os
import pathlib
import socket
import subprocess
import time

BINARY = os.environ["LONGWAVE_BINARY"]
MODEL = os.environ.get("LONGWAVE_TEST_MODEL")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def status_of(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def post(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    if response.status != 200:
        raise RuntimeError(f"{path}: {response.status} {answer}")
    return answer


@contextlib.contextmanager
def server(*options, model=MODEL, log=subprocess.DEVNULL):
    """Yields (process, port, seconds from exec to /health = 200). log: a file for what the server writes, None: this one's own."""
    port = free_port()
    began = time.monotonic()
    process = subprocess.Popen([BINARY, "serve", "-m", model, "--port", str(port), *options], stdin=subprocess.DEVNULL,
                               stderr=log)
    try:
        while status_of(port, "/health") != 200:
            if process.poll() is not None or time.monotonic() - began > 120:
                raise RuntimeError(f"the server did not start: exit status {process.poll()}")
            time.sleep(0.002)
        yield process, port, time.monotonic() - began
    finally:
        process.terminate()
        process.wait()


def resident_bytes(process):
    """Now and at the peak."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return tuple(int(fields[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))


def exact_resident_bytes(process):
    """Now, counted page by page: what /proc/PID/status says may be some hundred KB off."""
    rollup = pathlib.Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Rss:"))


def metric(port, name):
    """The value of an unlabelled metric, or the sum over its labels."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    values = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{"))]
    if not values:
        raise RuntimeError(f"/metrics has no {name}")
    return sum(values)
