# SPDX-License-Identifier: Apache-2.0
"""A longwave server as a process on a free port, and what tests ask of it: JSON, raw bytes, metrics."""
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import time

BINARY = pathlib.Path(os.environ["LONGWAVE_BINARY"]).resolve()
MODEL = pathlib.Path(os.environ["LONGWAVE_TEST_MODEL"]).resolve()
MAKE_TINY_MODEL = BINARY.parent.parent / "tests" / "support" / "make_tiny_model"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def make_tiny_model(path, *settings):
    subprocess.run([MAKE_TINY_MODEL, str(path), *settings], check=True)
    return path


def strict_json(text):
    """JSON without the NaN and Infinity that Python lets pass."""
    return json.loads(text, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(f"{name} in JSON")))


class Server:
    def __init__(self, model, *options, log=None):
        """log: a path for the log, at level info; else warnings alone go to the test's own stderr."""
        self.port = free_port()
        self.log_path = log
        level = ["--log-level", "warn"] if log is None else []
        with open(log or os.devnull, "wb") as file:
            self.process = subprocess.Popen(
                [BINARY, "serve", "-m", str(model), "--port", str(self.port), *level, *options],
                stdin=subprocess.DEVNULL, stderr=file if log else None)
        self.wait_ready()

    def log_lines(self, msg):
        """The lines of a JSON log with this message."""
        lines = [strict_json(line) for line in pathlib.Path(self.log_path).read_text(encoding="utf-8").splitlines()]
        return [line for line in lines if line["msg"].startswith(msg)]

    def wait_log(self, msg, n=1, timeout=60.0):
        """The last one of at least n lines with this message."""
        deadline = time.monotonic() + timeout
        while len(lines := self.log_lines(msg)) < n:
            assert time.monotonic() < deadline, f"{len(lines)} of {n} lines '{msg}'"
            time.sleep(0.02)
        return lines[-1]

    @classmethod
    def attach(cls, process, port):
        """A server that the test has started in its own way."""
        server = cls.__new__(cls)
        server.process, server.port = process, port
        server.wait_ready()
        return server

    def wait_ready(self):
        deadline = time.monotonic() + 120
        while self.status("/health") != 200:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: exit status {self.process.poll()}")
            time.sleep(0.01)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def status(self, path):
        try:
            return self.request("GET", path)[0]
        except OSError:
            return 0

    def request(self, method, path, body=None, headers=None):
        """(status, headers, body bytes); body: bytes, or anything that becomes JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        answer = response.status, dict(response.getheaders()), response.read()
        connection.close()
        return answer

    def post(self, path, body):
        status, _, answer = self.request("POST", path, body)
        return status, strict_json(answer)

    def error(self, path, body):
        """(status, error object); the request must fail."""
        status, answer = self.post(path, body)
        assert set(answer) == {"error"} and set(answer["error"]) == {"message", "type", "param", "code"}, answer
        return status, answer["error"]

    def frames(self, path, body):
        """The data of every frame of a stream; checks what holds for all streams."""
        status, headers, answer = self.request("POST", path, {**body, "stream": True})
        assert status == 200, answer
        assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
        lines = [line for line in answer.decode().split("\n\n") if line and not line.startswith(":")]
        assert all(line.startswith("data: ") for line in lines)
        assert lines[-1] == "data: [DONE]" and lines.count("data: [DONE]") == 1
        frames = [strict_json(line[6:]) for line in lines[:-1]]
        for key in ("id", "created", "model", "system_fingerprint", "object"):
            assert len({frame[key] for frame in frames}) == 1
        for frame in frames:
            assert all("finish_reason" in choice for choice in frame["choices"])
        return frames

    def raw(self, data, timeout=10.0):
        """Bytes in, all bytes out until the server closes or nothing comes any more."""
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.settimeout(timeout)
            try:
                s.sendall(data)
            except OSError:
                pass  # refused before the end: the answer is what counts
            answer = b""
            try:
                while piece := s.recv(65536):
                    answer += piece
            except OSError:
                pass
            return answer

    def open_post(self, path, body):
        """A socket with a request under way."""
        data = json.dumps(body).encode()
        s = socket.create_connection(("127.0.0.1", self.port))
        s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                  % (path.encode(), len(data)) + data)
        return s

    def metric(self, name):
        page = self.request("GET", "/metrics")[2].decode()
        values = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", page, re.M)
        assert values, f"no metric {name}"
        return sum(float(value) for value in values)

    def wait_metric(self, name, test, timeout=60.0):
        deadline = time.monotonic() + timeout
        while not test(self.metric(name)):
            assert time.monotonic() < deadline, f"{name} stays {self.metric(name)}"
            time.sleep(0.02)

    def wait_idle(self, timeout=60.0):
        """Nothing runs or waits, and only the prefix cache holds pages."""
        deadline = time.monotonic() + timeout
        while True:
            busy = {name: self.metric(name) for name in (
                "vllm:num_requests_running", "vllm:num_requests_waiting", "longwave_generations_open", "longwave_swap_bytes")}
            pages = re.findall(r'^longwave_kv_pages{.*pool="(?!image)\w+".*} (\S+)$', self.request("GET", "/metrics")[2].decode(), re.M)
            busy["pages"] = sum(map(float, pages)) - self.metric("longwave_prefix_cache_pages")
            if not any(busy.values()):
                return
            assert time.monotonic() < deadline, f"the server does not come to rest: {busy}"
            time.sleep(0.02)
