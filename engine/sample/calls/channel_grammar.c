/* SPDX-License-Identifier: Apache-2.0 */
/* Answers in channels: analysis, then a word before a call and the call, or the final text. */
#include "engine/sample/calls/calls_impl.h"

/* Between two messages of one answer. */
static GrammarNode next_message(const CallWriter *writer)
{
    return grammar_seq(writer->builder, call_mark(writer, MARK_MESSAGE_END), call_mark(writer, MARK_START),
                       grammar_text(writer->builder, "assistant"));
}

static GrammarNode header(const CallWriter *writer, const char *channel)
{
    return grammar_seq(writer->builder, call_mark(writer, MARK_CHANNEL), grammar_text(writer->builder, channel),
                       call_mark(writer, MARK_MESSAGE));
}

/* Any text up to what ends a message. */
static GrammarNode free_text(const CallWriter *writer)
{
    static const AnswerMark ends[] = {MARK_MESSAGE_END, MARK_START, MARK_CHANNEL, MARK_CALL_END};
    const char *marks[sizeof ends / sizeof *ends];
    size_t n = 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const AnswerMarker *mark = &writer->style->marks[ends[i]];
        if (mark->n && !mark->is_control) marks[n++] = mark->text;
    }
    return grammar_without(writer->builder, marks, n);
}

static GrammarNode message(const CallWriter *writer, const char *channel)
{
    return grammar_seq(writer->builder, header(writer, channel), free_text(writer), next_message(writer));
}

GrammarNode channel_call(const CallWriter *writer, const char *name, GrammarNode arguments)
{
    GrammarBuilder *builder = writer->builder;
    return grammar_seq(builder, call_mark(writer, MARK_CHANNEL), grammar_text(builder, "commentary to=functions."),
                       grammar_text(builder, name), grammar_text(builder, " "), call_mark(writer, MARK_CONSTRAIN),
                       grammar_text(builder, "json"), call_mark(writer, MARK_MESSAGE), arguments);
}

GrammarNode channel_answer(const CallWriter *writer, const AnswerRules *rules, GrammarNode call, bool only_one)
{
    GrammarBuilder *builder = writer->builder;
    GrammarNode content = rules->has_content ? rules->content : free_text(writer);
    GrammarNode answer = grammar_seq(builder, header(writer, "final"), content);
    if (rules->n_tools) {
        GrammarNode more = grammar_many(builder, grammar_seq(builder, next_message(writer), call));
        GrammarNode calls = only_one ? call : grammar_seq(builder, call, more);
        GrammarNode word =
            rules->must_call ? grammar_empty(builder) : grammar_optional(builder, message(writer, "commentary"));
        calls = grammar_seq(builder, word, calls);
        answer = rules->must_call ? calls : grammar_alt(builder, calls, answer);
    }
    GrammarNode thoughts = grammar_many(builder, message(writer, "analysis"));
    if (rules->may_reason || rules->in_reasoning) answer = grammar_seq(builder, thoughts, answer);
    if (!rules->in_reasoning) return answer;
    return grammar_seq(builder, free_text(writer), next_message(writer), answer);
}
