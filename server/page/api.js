// SPDX-License-Identifier: Apache-2.0
// Requests to the server that this page came from.

class ApiError extends Error {
  /** status 0: there was no answer; retryAfter: seconds, 0 when not told; code: the API's, "" when not told. */
  constructor(status, message, retryAfter = 0, code = "") {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
    this.code = code;
  }
}

async function errorOf(response) {
  const text = await response.text();
  let message = text.slice(0, 300) || response.statusText;
  let code;
  try {
    ({ message, code } = JSON.parse(text).error);
  } catch {
    // a proxy's own page: its text has to do
  }
  return new ApiError(response.status, message, Number(response.headers.get("Retry-After")) || 0, code);
}

/** Header values are bytes: a key goes as the UTF-8 that it is in the server's file. */
function bearer(key) {
  return `Bearer ${[...new TextEncoder().encode(key)].map((byte) => String.fromCharCode(byte)).join("")}`;
}

/** Control characters cannot go at all. */
const isSendable = (key) => !/[\0-\x1f\x7f]/.test(key);

/** path: below BASE, without a slash before it. The response, or an ApiError; an abort stays an AbortError. */
async function callServer(path, { body, signal } = {}) {
  const headers = {};
  const key = String(kept("key", ""));
  if (key) headers.Authorization = bearer(key);
  if (body) headers["Content-Type"] = "application/json";
  const method = body ? "POST" : "GET";
  let response;
  try {
    const url = new URL(path, BASE);
    response = await fetch(url, { method, headers, body: body && JSON.stringify(body), signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer.");
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

/** The frame's data; null: it has none; undefined: it is the end. */
function frameOf(event) {
  if (!event.startsWith("data: ")) return null; // a comment, so that proxies see life
  if (event === "data: [DONE]") return undefined;
  let frame;
  try {
    frame = JSON.parse(event.slice(6));
  } catch {
    throw new ApiError(0, "The answer cannot be read: is something between this page and the server?");
  }
  if (frame.error) throw new ApiError(500, frame.error.message);
  return frame;
}

async function readPiece(reader) {
  let piece;
  try {
    piece = await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The connection broke before the answer was whole.");
  }
  if (piece.done) throw new ApiError(0, "The connection ended before the answer was whole.");
  return piece.value;
}

/** Hands every frame of a stream of server-sent events to onFrame, to [DONE]. */
async function readFrames(response, onFrame) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const events = (rest + await readPiece(reader)).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const frame = frameOf(event);
        if (frame === undefined) return;
        if (frame) onFrame(frame);
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // or a server that goes on would be listened to for nobody
  }
}
