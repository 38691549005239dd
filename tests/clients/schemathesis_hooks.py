# SPDX-License-Identifier: Apache-2.0
"""Loaded by schemathesis (SCHEMATHESIS_HOOKS): bodies that mostly make sense, and what no answer may be."""
import random

import schemathesis

# Each of these makes nearly every body that has it a conflict with some other field, or asks for what is not there.
SELDOM = ("stream_options", "top_logprobs", "max_completion_tokens", "min_tokens", "continue_final_message", "repeat_penalty",
          "longwave", "logit_bias", "stop_token_ids", "tools", "tool_choice", "chat_template_kwargs", "grammar", "guided_grammar",
          "regex", "guided_regex", "choice", "guided_choice", "structured_outputs", "response_format", "json_schema", "guided_json")


@schemathesis.hook
def map_body(context, body):
    if isinstance(body, dict):
        for key in SELDOM:
            if key in body and random.random() < 0.9:
                del body[key]
        if isinstance(body.get("max_tokens"), int) and random.random() < 0.9:
            body["max_tokens"] = body["max_tokens"] % 9
    return body


@schemathesis.check
def no_server_error(ctx, response, case):
    """504 is the answer to whoever gives a request less time than it takes."""
    asked = response.status_code == 504 and isinstance(case.body, dict) and "timeout_s" in case.body
    assert response.status_code < 500 or asked, f"{response.status_code}: {response.content[:300]}"
