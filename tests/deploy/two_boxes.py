#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two servers behind the HAProxy of deploy/haproxy: requests come all the time, on connections of their own and on ones that stay,
small ones and large ones; one box after the other goes and comes back, and every answer is right. Who leaves is not computed for.
The last line has the figures."""
import concurrent.futures
import http.client
import json
import pathlib
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "bars"))
from bar_server import BINARY, MODEL, free_port, metric, status_of  # noqa: E402

N_CLIENTS = 6
QUESTION = {"prompt": "The capital of France is", "max_tokens": 12, "temperature": 0}
LARGE = " " * 50000  # behind the JSON: more than HAProxy's buffers hold by default


class Box:
    def __init__(self):
        self.port = free_port()
        self.process = None

    def start(self):
        self.process = subprocess.Popen([BINARY, "serve", "-m", MODEL, "--port", str(self.port), "--host-memory", "512M", "--ctx", "2048",
                                         "--log-level", "error"], stdin=subprocess.DEVNULL)
        return self

    def wait_ready(self):
        deadline = time.monotonic() + 60
        while status_of(self.port, "/readyz") != 200:
            assert time.monotonic() < deadline and self.process.poll() is None
            time.sleep(0.05)

    def end(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(90)


def start_haproxy(folder, boxes):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key", "-out", folder / "cert",
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    (folder / "pem").write_bytes((folder / "cert").read_bytes() + (folder / "key").read_bytes())
    port = free_port()
    text = (ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text(encoding="utf-8")
    for old, new in ((":443 ", f"127.0.0.1:{port} "), ("/etc/haproxy/longwave.pem", str(folder / "pem")),
                     ("10.0.0.11:8080", f"127.0.0.1:{boxes[0].port}"), ("10.0.0.12:8080", f"127.0.0.1:{boxes[1].port}")):
        assert old in text, old
        text = text.replace(old, new)
    (folder / "haproxy.cfg").write_text(text, encoding="utf-8")
    checked = subprocess.run(["haproxy", "-c", "-f", folder / "haproxy.cfg"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0 and "WARNING" not in checked.stderr, checked.stderr
    return subprocess.Popen(["haproxy", "-f", folder / "haproxy.cfg"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL), port


def connect(port, context):
    return http.client.HTTPSConnection("localhost", port, timeout=120, context=context)


def post(connection, key, padding="", **fields):
    connection.request("POST", "/v1/completions", json.dumps({**QUESTION, **fields}) + padding,
                       {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})


def status_through(port, context, path, headers):
    connection = connect(port, context)
    connection.request("GET", path, headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def ask(connection, key, stream, padding="", stays=False):
    """The text, or what went wrong."""
    try:
        post(connection, key, padding, stream=stream)
        response = connection.getresponse()
        body = response.read().decode()
        if response.status != 200:
            return f"status {response.status}"
        if not stream:
            return json.loads(body)["choices"][0]["text"]
        if not body.rstrip().endswith("data: [DONE]"):
            return "cut stream"
        frames = [json.loads(line[6:]) for line in body.split("\n\n") if line.startswith("data: {")]
        return "".join(frame["choices"][0]["text"] for frame in frames if frame["choices"])
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    finally:
        if not stays:
            connection.close()


def leave(port, context, boxes):
    """How many of two requests, one of them a stream, are stopped soon after their client has left."""
    for stream in (False, True):
        connection = connect(port, context)
        post(connection, "leaver", stream=stream, max_tokens=1500, ignore_eos=True)
        time.sleep(0.5)
        connection.close()
    time.sleep(2)
    return int(sum(metric(box.port, "longwave_requests_aborted_total") for box in boxes))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        boxes = [Box().start(), Box().start()]
        haproxy = None
        try:
            for box in boxes:
                box.wait_ready()
            haproxy, port = start_haproxy(folder, boxes)
            context = ssl.create_default_context(cafile=folder / "cert")
            time.sleep(3)  # its first checks
            assert haproxy.poll() is None, "HAProxy has ended"
            expected = ask(connect(port, context), "x", False)
            n_stopped = leave(port, context, boxes)
            stop, answers = threading.Event(), []

            def client(number):
                stays, padding = number % 3 != 0, LARGE if number % 2 else ""
                connection = connect(port, context)
                while not stop.is_set():
                    answers.append(ask(connection, f"key{number}", number % 2 == 0, padding, stays))

            with concurrent.futures.ThreadPoolExecutor(N_CLIENTS) as pool:
                try:
                    clients = [pool.submit(client, i) for i in range(N_CLIENTS)]
                    time.sleep(3)
                    for box in boxes:  # an upgrade: one after the other drains and comes back
                        box.end(signal.SIGTERM)
                        box.start().wait_ready()
                        time.sleep(5)
                finally:
                    stop.set()
                concurrent.futures.wait(clients)
            drained = len(answers)
            wrong = [a for a in answers if a != expected]
            boxes[0].end(signal.SIGKILL)  # nobody asks it at the moment: what is open would be lost with it
            after = [ask(connect(port, context), f"other{i}", i % 2 == 0) for i in range(12)]
            wrong += [a for a in after if a != expected]
            asked = (("/metrics", {}), ("/%6detrics", {}), ("/metrics", {"Authorization": "Bearer k"}))
            hidden = [status_through(port, context, path, headers) for path, headers in asked] == [404, 404, 200]
        finally:
            if haproxy:
                haproxy.terminate()
                haproxy.wait()
            for box in boxes:
                box.end(signal.SIGTERM)
    for text in wrong[:5]:
        print(text)
    print(f"{drained} answers while two boxes were renewed and 12 beside a dead one: {len(wrong)} wrong, bar 0; "
          f"{n_stopped} of 2 whose client left were stopped; /metrics is {'only for those with a key' if hidden else 'open, or closed to keys'}")
    return 0 if not wrong and n_stopped == 2 and hidden and drained > 30 and "Paris" in expected else 1


sys.exit(main())
