/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/answer_style.h"

#include <stdio.h>
#include <string.h>

static const ToolTags function_tags = {.before_name = "<function=",
                                       .behind_name = ">",
                                       .before_key = "<parameter=",
                                       .behind_key = ">",
                                       .before_value = "",
                                       .behind_value = "</parameter>",
                                       .end = "</function>",
                                       .has_lines = true};
static const ToolTags argument_tags = {.before_name = "",
                                       .behind_name = "",
                                       .before_key = "<arg_key>",
                                       .behind_key = "</arg_key>",
                                       .before_value = "<arg_value>",
                                       .behind_value = "</arg_value>",
                                       .end = ""};
static const ToolSection counted_section = {
    .prefix = "functions.", .head = "", .neck = "%", .tail = "", .between = "", .counts = true};
static const ToolSection fenced_section = {
    .prefix = "", .head = "function%", .neck = "\n```json\n", .tail = "\n```", .between = "\n"};
static const ToolSection plain_section = {.prefix = "", .head = "", .neck = "%", .tail = "", .between = ""};

#define DEEPSEEK_MARKS                                                                                                 \
    {                                                                                                                  \
        [MARK_CALL] = "<｜tool▁calls▁begin｜>", [MARK_CALL_END] = "<｜tool▁calls▁end｜>",                              \
        [MARK_ITEM] = "<｜tool▁call▁begin｜>", [MARK_ITEM_END] = "<｜tool▁call▁end｜>",                                \
        [MARK_ARGUMENTS] = "<｜tool▁sep｜>"                                                                        \
    }

/* The first row whose signs a template shows is its format; the last one is everybody else's. */
static const ToolFormat formats[] = {
    {.name = "qwen3-coder",
     .signs = {"<tool_call>", "<function="},
     .body = CALL_TAGS,
     .tags = &function_tags,
     .marks = {[MARK_CALL] = "<tool_call>", [MARK_CALL_ALSO] = "<function=", [MARK_CALL_END] = "</tool_call>"},
     .pad = "\n",
     .before = "\n"},
    {.name = "hermes",
     .signs = {"<tool_call>"},
     .lacks = "<arg_key>",
     .body = CALL_JSON,
     .marks = {[MARK_CALL] = "<tool_call>", [MARK_CALL_END] = "</tool_call>"},
     .pad = "\n",
     .before = "\n",
     .arguments = "arguments"},
    {.name = "glm",
     .signs = {"<tool_call>", "<arg_key>"},
     .body = CALL_TAGS,
     .tags = &argument_tags,
     .marks = {[MARK_CALL] = "<tool_call>", [MARK_CALL_END] = "</tool_call>"},
     .before = "\n"},
    {.name = "kimi-k2",
     .signs = {"<|tool_call_argument_begin|>"},
     .body = CALL_SECTION,
     .section = &counted_section,
     .marks = {[MARK_CALL] = "<|tool_calls_section_begin|>",
               [MARK_CALL_END] = "<|tool_calls_section_end|>",
               [MARK_ITEM] = "<|tool_call_begin|>",
               [MARK_ITEM_END] = "<|tool_call_end|>",
               [MARK_ARGUMENTS] = "<|tool_call_argument_begin|>"},
     .before = ""},
    {.name = "deepseek-v3",
     .signs = {"<｜tool▁sep｜>", "```json"},
     .body = CALL_SECTION,
     .section = &fenced_section,
     .marks = DEEPSEEK_MARKS,
     .before = ""},
    {.name = "deepseek-v3.1",
     .signs = {"<｜tool▁sep｜>"},
     .body = CALL_SECTION,
     .section = &plain_section,
     .marks = DEEPSEEK_MARKS,
     .before = ""},
    {.name = "mistral",
     .signs = {"[TOOL_CALLS]"},
     .body = CALL_NAMED,
     .marks = {[MARK_CALL] = "[TOOL_CALLS]", [MARK_ARGUMENTS] = "[ARGS]", [MARK_CALL_ID] = "[CALL_ID]"},
     .before = "",
     .arguments = "arguments"},
    {.name = "gemma",
     .signs = {"<start_function_call>"},
     .body = CALL_GEMMA,
     .marks =
         {[MARK_CALL] = "<start_function_call>", [MARK_CALL_END] = "<end_function_call>", [MARK_QUOTE] = "<escape>"},
     .before = "\n"},
    {.name = "gemma4",
     .signs = {"<|tool_call>"},
     .body = CALL_GEMMA,
     .marks = {[MARK_CALL] = "<|tool_call>", [MARK_CALL_END] = "<tool_call|>", [MARK_QUOTE] = "<|\"|>"},
     .before = "\n"},
    {.name = "lfm2",
     .signs = {"<|tool_list_start|>"},
     .body = CALL_PYTHON,
     .marks = {[MARK_CALL] = "<|tool_call_start|>", [MARK_CALL_END] = "<|tool_call_end|>"},
     .before = "\n"},
    {.name = "gpt-oss",
     .signs = {"<|channel|>", "<|message|>", "<|start|>"},
     .body = CALL_CHANNELS,
     .marks = {[MARK_CALL_END] = "<|call|>",
               [MARK_CHANNEL] = "<|channel|>",
               [MARK_MESSAGE] = "<|message|>",
               [MARK_MESSAGE_END] = "<|end|>",
               [MARK_START] = "<|start|>",
               [MARK_CONSTRAIN] = "<|constrain|>"},
     .before = ""},
    {.name = "llama3-json",
     .signs = {"<|start_header_id|>", "\"parameters\""},
     .lacks = "<function=",
     .body = CALL_JSON,
     .bare = '{',
     .marks = {[MARK_CALL] = "<|python_tag|>"},
     .before = "",
     .arguments = "parameters"},
    {.name = "pythonic", .signs = {"[func_name1("}, .body = CALL_PYTHON, .bare = '[', .before = ""},
    {.name = "generic", .body = CALL_JSON, .bare = '{', .before = "\n", .arguments = "arguments"},
};

enum { N_FORMATS = sizeof formats / sizeof *formats };

static const struct {
    const char *name, *open, *close;
    bool in_channels; /* of forms that have channels, and of these alone */
} thoughts[] = {
    {"gpt-oss", "<|channel|>analysis<|message|>", "<|end|>", true},
    {"think", "<think>", "</think>", false},
    {"mistral", "[THINK]", "[/THINK]", false},
    {"gemma4", "<|channel>thought\n", "<channel|>", false},
    {"cohere", "<|START_THINKING|>", "<|END_THINKING|>", false},
    {"seed", "<seed:think>", "</seed:think>", false},
};

enum { N_THOUGHTS = sizeof thoughts / sizeof *thoughts };

static const char *const json_begins[] = {"{\"name\": \"", "{\"name\":\"", "{\"type\": \"function\", \"name\": \"",
                                          "{\"type\":\"function\",\"name\":\""};
static const char *const python_begins[] = {"["};

const char *const *answer_style_begins(const AnswerStyle *style, size_t *ret_n)
{
    bool is_python = style->format->body == CALL_PYTHON;
    *ret_n = is_python ? 1 : sizeof json_begins / sizeof *json_begins;
    return is_python ? python_begins : json_begins;
}

char answer_style_name_end(const AnswerStyle *style)
{
    return style->format->body == CALL_PYTHON ? '(' : '"';
}

static bool is_auto(const char *name)
{
    return !name || !*name || !strcmp(name, "auto");
}

static bool has_signs(const ToolFormat *format, const char *source)
{
    for (size_t i = 0; i < sizeof format->signs / sizeof *format->signs; i++)
        if (format->signs[i] && !strstr(source, format->signs[i])) return false;
    return !format->lacks || !strstr(source, format->lacks);
}

static const ToolFormat *find_format(const char *source)
{
    for (size_t i = 0; i < N_FORMATS; i++)
        if (has_signs(&formats[i], source)) return &formats[i];
    return &formats[N_FORMATS - 1];
}

static bool name_format(const char *name, const ToolFormat **ret_format, Error *error)
{
    for (size_t i = 0; i < N_FORMATS; i++)
        if (!strcmp(formats[i].name, name)) {
            *ret_format = &formats[i];
            return true;
        }
    char known[256] = "";
    for (size_t i = 0, n = 0; i < N_FORMATS && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", formats[i].name);
    return error_set_param(error, ERR_INVALID, "tool_format", "tool_format '%.40s' is not known (known: %s)", name,
                           known);
}

static void set_mark(AnswerStyle *style, AnswerMark mark, const char *text, size_t n, const Tokenizer *tokenizer)
{
    AnswerMarker *marker = &style->marks[mark];
    *marker = (AnswerMarker){.id = TOK_NONE};
    if (!text || !n || n >= sizeof marker->text) return;
    memcpy(marker->text, text, n);
    if (tokenizer) marker->id = tok_find(tokenizer, text, n);
    marker->is_control = marker->id != TOK_NONE && tok_is_special(tokenizer, marker->id);
    if (marker->is_control) {
        marker->n = 2;
        marker->bytes[0] = ANSWER_CONTROL;
        marker->bytes[1] = (char)('0' + mark);
    } else {
        marker->n = (uint32_t)n;
        memcpy(marker->bytes, text, n);
    }
}

static void set_text(AnswerStyle *style, AnswerMark mark, const char *text, const Tokenizer *tokenizer)
{
    set_mark(style, mark, text, text ? strlen(text) : 0, tokenizer);
}

/* The texts around a call of a section, with the mark that they have in them. */
static void set_around(const AnswerStyle *style, const char *text, AnswerMarker *ret_marker)
{
    const AnswerMarker *mark = &style->marks[MARK_ARGUMENTS];
    *ret_marker = (AnswerMarker){.id = TOK_NONE};
    for (; *text && ret_marker->n + mark->n < sizeof ret_marker->bytes; text++) {
        const char *bytes = *text == '%' ? mark->bytes : text;
        uint32_t n = *text == '%' ? mark->n : 1;
        memcpy(ret_marker->bytes + ret_marker->n, bytes, n);
        ret_marker->n += n;
    }
}

static void set_section(AnswerStyle *style)
{
    const ToolSection *section = style->format->section;
    if (!section) return;
    set_around(style, section->head, &style->call_head);
    set_around(style, section->neck, &style->call_neck);
    set_around(style, section->tail, &style->call_tail);
}

/* A model thinks if its template ends thoughts, or if its vocabulary has both marks. */
static bool find_thoughts(AnswerStyle *style, const char *source, const char *name, const Tokenizer *tokenizer,
                          Error *error)
{
    bool is_known = is_auto(name) || !strcmp(name, "none");
    for (size_t i = 0; i < N_THOUGHTS && !style->has_reasoning; i++) {
        const char *open = thoughts[i].open, *close = thoughts[i].close;
        bool has_channels = style->format->body == CALL_CHANNELS;
        bool is_named = !is_auto(name) && !strcmp(name, thoughts[i].name);
        bool is_shown = is_auto(name) && has_channels == thoughts[i].in_channels &&
                        (has_channels || strstr(source, close) ||
                         (tok_find(tokenizer, open, strlen(open)) != TOK_NONE &&
                          tok_find(tokenizer, close, strlen(close)) != TOK_NONE));
        is_known |= is_named;
        if (!is_named && !is_shown) continue;
        style->has_reasoning = true;
        set_text(style, MARK_THINK, open, tokenizer);
        set_text(style, MARK_THINK_END, close, tokenizer);
    }
    if (is_known) return true;
    char known[128] = "none";
    for (size_t i = 0, n = strlen(known); i < N_THOUGHTS && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, ", %s", thoughts[i].name);
    return error_set_param(error, ERR_INVALID, "reasoning_format", "reasoning_format '%.40s' is not known (known: %s)",
                           name, known);
}

/*
 * What stands around a call in JSON that a template of no known format shows: a mark before its brace, one behind it.
 * Several words before or behind are no mark.
 */
static void read_marks(AnswerStyle *style, const ChatCallShown *shown, const Tokenizer *tokenizer)
{
    size_t n = shown->n_before, begin = 0, end = 0;
    while (begin < n && (shown->before[begin] == ' ' || shown->before[begin] == '\n')) begin++;
    while (n > begin && (shown->before[n - 1] == ' ' || shown->before[n - 1] == '\n' || shown->before[n - 1] == '['))
        n--;
    if (n == begin || !strchr("<[|", shown->before[begin]) || memchr(shown->before + begin, ' ', n - begin)) return;
    const char *after = shown->after;
    while (*after == ' ' || *after == '\n' || *after == ']') after++;
    while (after[end] && !strchr(">] \n", after[end])) end++;
    if (after[end] && strchr(">]", after[end])) end++;
    style->bare = 0;
    set_mark(style, MARK_CALL, shown->before + begin, n - begin, tokenizer);
    if (end && strchr("<[|", *after) && !(tokenizer && tok_is_end(tokenizer, tok_find(tokenizer, after, end))))
        set_mark(style, MARK_CALL_END, after, end, tokenizer);
}

/* Blanks at the end and at the begin of what is around a call, as far as they may be there. */
static void read_pads(AnswerStyle *style, const ChatCallShown *shown)
{
    const AnswerMarker *mark = &style->marks[MARK_CALL];
    size_t n_mark = strlen(mark->text), n = 0;
    const char *at = n_mark ? strstr(shown->before, mark->text) : NULL;
    if (!at) return;
    snprintf(style->pad_before, sizeof style->pad_before, "%s", at + n_mark);
    while (n < sizeof style->pad_after - 1 && (shown->after[n] == '\n' || shown->after[n] == ' ')) n++;
    if (style->pad_before[strspn(style->pad_before, " \n")]) style->pad_before[0] = '\0';
    snprintf(style->pad_after, sizeof style->pad_after, "%.*s", (int)n, shown->after);
}

/* What depends on how the template shows calls. */
static void read_shown(AnswerStyle *style, const ChatCallShown *shown, bool finds_marks, const Tokenizer *tokenizer)
{
    style->shows_tools = shown->shows_tools;
    style->shows_calls = shown->shows_call;
    style->shows_two = shown->shows_two;
    if (!shown->shows_call || !shown->n_before) return;
    if (finds_marks && style->format->bare && !style->marks[MARK_CALL].n) read_marks(style, shown, tokenizer);
    read_pads(style, shown);
}

bool answer_style_find(const ChatTemplate *chat_template, const Tokenizer *tokenizer, const char *tool_format,
                       const char *reasoning, AnswerStyle *ret_style, Error *error)
{
    const char *source = chat_template ? chat_template_source(chat_template) : "";
    AnswerStyle style = {.format = find_format(source)};
    if (!is_auto(tool_format) && !name_format(tool_format, &style.format, error)) return false;
    style.bare = style.format->bare;
    for (int mark = 0; mark < ANSWER_MARKS; mark++)
        set_text(&style, (AnswerMark)mark, style.format->marks[mark], tokenizer);
    set_section(&style);
    if (!find_thoughts(&style, source, reasoning, tokenizer, error)) return false;
    if (tokenizer && style.bare && !style.marks[MARK_CALL].is_control) style.marks[MARK_CALL].n = 0;
    style.marks_arguments = !is_auto(tool_format) || strstr(source, "[ARGS]");
    style.lists_calls = style.format->body == CALL_PYTHON || strstr(source, "[TOOL_CALLS][");
    style.shows_two = !style.format->bare || style.lists_calls;
    const char *pad = style.format->pad ? style.format->pad : "";
    snprintf(style.pad_before, sizeof style.pad_before, "%s", pad);
    snprintf(style.pad_after, sizeof style.pad_after, "%s", pad);
    if (chat_template) {
        ChatCallShown shown;
        if (!chat_template_try_tools(chat_template, &shown, error)) return false;
        read_shown(&style, &shown, is_auto(tool_format), tokenizer);
    }
    for (int mark = 0; mark < ANSWER_MARKS; mark++)
        if (style.marks[mark].is_control) style.control_ids[style.n_control_ids++] = style.marks[mark].id;
    *ret_style = style;
    return true;
}

AnswerMark answer_style_control(const AnswerStyle *style, uint32_t id)
{
    /* the last one: what ends reasoning may be what ends each message */
    for (int mark = ANSWER_MARKS; mark-- > 0;)
        if (style->marks[mark].is_control && style->marks[mark].id == id) return (AnswerMark)mark;
    return ANSWER_MARKS;
}
