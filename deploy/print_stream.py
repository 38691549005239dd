#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the server-sent events of a streamed chat from stdin and prints the answer's text as it comes."""
import json
import sys

shown = 0
for line in sys.stdin.buffer:
    if not line.startswith(b"data: "):
        if line.strip() and not line.startswith(b":"):
            sys.exit(f"not a stream of events: {line.decode(errors='replace').strip()}")
        continue
    data = line[len(b"data: "):].strip()
    if data == b"[DONE]":
        print(flush=True)
        sys.exit(0 if shown else "the answer was empty")
    event = json.loads(data)
    if "error" in event:
        sys.exit(f"the server failed: {event['error']['message']}")
    for choice in event["choices"]:
        text = choice["delta"].get("content") or ""
        shown += len(text)
        print(text, end="", flush=True)
sys.exit("the stream ended before [DONE]")
