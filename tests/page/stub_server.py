# SPDX-License-Identifier: Apache-2.0
"""A server with the real page and made-up answers: what a real one gives seldom, or at a time that no test can choose."""
import http.server
import json
import select
import threading


class StubServer:
    """answers: {path: (status, headers, body)}, or a function of the request's JSON that makes one; a body of a list is a stream, an
    Event within it holds it up. prefix: a path that all is below of, as behind a proxy. keys and paths: of each request in turn."""

    def __init__(self, page_from, prefix=""):
        self.prefix, self.keys, self.paths, self.left = prefix, [], [], threading.Event()
        _, headers, body = page_from.request("GET", "/")
        policy = {name: headers[name] for name in ("Content-Type", "Content-Security-Policy")}
        self.answers = {"/": (200, policy, body), "/metrics": (200, {"Content-Type": "text/plain"}, b""),
                        "/v1/models": (200, {"Content-Type": "application/json"}, page_from.request("GET", "/v1/models")[2])}
        self.asked = []
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                stub.answer(self, None)

            def do_POST(self):
                stub.answer(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, handler, body):
        if body:
            self.asked.append(body)
        self.paths.append(handler.path)
        self.keys.append(handler.headers["Authorization"])
        path = handler.path.removeprefix(self.prefix) or "/"
        found = self.answers.get(path) if handler.path.startswith(self.prefix) else None
        status, headers, data = (found(body) if callable(found) else found) or (404, {}, b"a stray")
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        for piece in data if isinstance(data, list) else [data]:
            if not isinstance(piece, threading.Event):
                handler.wfile.write(piece)
                continue
            while not piece.wait(0.02):
                if select.select([handler.connection], [], [], 0)[0]:  # nothing more is sent, so it is the end
                    self.left.set()
                    return

    def set_error(self, path, status, message, **headers):
        body = json.dumps({"error": {"message": message, "type": "x", "param": None, "code": None}}).encode()
        self.answers[path] = (status, {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}, body)

    def set_frames(self, *frames):
        def written(frame):
            if isinstance(frame, threading.Event):
                return frame
            return b"data: %s\n\n" % (frame if isinstance(frame, bytes) else json.dumps(frame).encode())

        pieces = [b": ping\n\n", *map(written, frames)]
        self.answers["/v1/chat/completions"] = (200, {"Content-Type": "text/event-stream"}, pieces)

    def stop(self):
        self.http.shutdown()
        self.http.server_close()


def delta(**fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


FINAL = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "longwave": {
    "timings": {"queue_ms": 1, "prefill_ms": 2500, "decode_ms": 1000, "prefill_tokens_per_second": 40000, "decode_tokens_per_second": 50, "preemptions": 2},
    "cache": {"matched": 1000, "divergence": {"message": 1, "character": 17, "token": 1000, "reason": "differs"}},
    "attention": {"preset": "lserve-4k", "roles": "half", "tokens_attended": 4096, "tokens_of_context": 101000, "bytes_read": 5 << 20,
                  "bytes_of_context": 100 << 20, "missing_mass": 0.0123, "audited_missing_mass": 0.01, "audited_kl": 0.002}}}
USAGE = {"choices": [], "usage": {"prompt_tokens": 101000, "completion_tokens": 50, "total_tokens": 101050,
                                  "prompt_tokens_details": {"cached_tokens": 1000}, "completion_tokens_details": {"reasoning_tokens": 20}}}
