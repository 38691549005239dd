// SPDX-License-Identifier: Apache-2.0
// Requests to the server that this page came from.

class ApiError extends Error {
  /** status 0: there was no answer; retryAfter: seconds, 0 when not told. */
  constructor(status, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

async function errorOf(response) {
  const text = await response.text();
  let message = text.slice(0, 300) || response.statusText;
  try {
    message = JSON.parse(text).error.message;
  } catch {
    // a proxy's own page: its text has to do
  }
  return new ApiError(response.status, message, Number(response.headers.get("Retry-After")) || 0);
}

/** The response, or an ApiError; an abort stays an AbortError. */
async function callServer(path, { body, signal } = {}) {
  const headers = {};
  const key = kept("key", "");
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers["Content-Type"] = "application/json";
  const method = body ? "POST" : "GET";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer.");
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

/** Hands every frame of a stream of server-sent events to onFrame, to [DONE]. */
async function readFrames(response, onFrame) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "The connection broke before the answer was whole.");
    }
    if (piece.done) throw new ApiError(0, "The connection ended before the answer was whole.");
    const events = (rest + piece.value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ")) continue; // a comment, so that proxies see life
      if (event === "data: [DONE]") return;
      const frame = JSON.parse(event.slice(6));
      if (frame.error) throw new ApiError(500, frame.error.message);
      onFrame(frame);
    }
  }
}
