/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the answer parser. */
#pragma once
#include "engine/text/answer_parser.h"
#include "engine/text/tool_call.h"

typedef enum AnswerMode {
    MODE_START,
    MODE_HEADER, /* of channels: before a message's text */
    MODE_REASONING,
    MODE_THOUGHT, /* behind reasoning */
    MODE_CONTENT,
    MODE_CALL,
    MODE_CALLED,  /* behind the last byte of a call's body: its end mark is due */
    MODE_BETWEEN, /* behind a call */
    MODE_OVER,
} AnswerMode;

struct AnswerParser {
    const AnswerPlan *plan;
    AnswerParts *parts; /* of the push under way */
    AnswerMode mode;
    bool has_reasoning, has_content;
    bool joins;  /* of channels: the message is the second of its kind */
    Buffer held; /* blanks, then what may still become a mark; a header; not told yet */
    size_t n_blank;
    ToolCall call;
    Buffer raw;   /* since the last call that was told: content, if no other one comes of it */
    Buffer since; /* ToolCall.since, as long as its first name is not known */
};

/* ---- answers in channels ---- */

void answer_channels_feed(AnswerParser *parser, char byte);
void answer_channels_finish(AnswerParser *parser);
