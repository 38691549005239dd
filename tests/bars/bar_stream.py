# SPDX-License-Identifier: Apache-2.0
"""Streaming clients for the bars: many at once in one thread, with the arrival time of every piece."""
import asyncio
import json
import time


class Refused(Exception):
    def __init__(self, status, body):
        super().__init__(f"{status}: {body[:200]}")
        self.status = status


async def read_chunk(reader):
    size = int((await reader.readline()).split(b";")[0], 16)
    data = await reader.readexactly(size)
    await reader.readexactly(2)
    return data


async def read_head(reader):
    status = int((await reader.readline()).split()[1])
    headers = {}
    while (line := await reader.readline()).strip():
        name, value = line.decode().split(":", 1)
        headers[name.lower()] = value.strip().lower()
    return status, headers


async def read_rest(reader, headers):
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0)))
    whole = b""
    while data := await read_chunk(reader):
        whole += data
    return whole


def payload_of(body):
    return json.dumps(dict(body, stream=True)).encode()


async def stream(port, path, body, leave_after=None):
    """Yields (arrival time, parsed chunk) of one streamed answer; with leave_after, the client closes after so many chunks.
    A comment line is no chunk; an error in band is one. body: a dictionary, or its payload_of, where making that would be timed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        payload = body if isinstance(body, bytes) else payload_of(body)
        writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     f"Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n".encode() + payload)
        await writer.drain()
        status, headers = await read_head(reader)
        if status != 200:
            raise Refused(status, (await read_rest(reader, headers)).decode(errors="replace"))
        rest, n = b"", 0
        while data := await read_chunk(reader):
            now = time.monotonic()
            rest += data
            *frames, rest = rest.split(b"\n\n")
            for frame in frames:
                if frame.startswith(b"data: ") and frame != b"data: [DONE]":
                    yield now, json.loads(frame[6:])
                    n += 1
                    if n == leave_after:
                        return
    finally:
        writer.close()


def text_of(chunk):
    """What a chunk adds to the answer of a completion or a chat."""
    if not chunk.get("choices"):
        return ""
    choice = chunk["choices"][0]
    return choice.get("text") or (choice.get("delta") or {}).get("content") or ""


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
