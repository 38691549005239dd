/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/answer_style.h"
#include "tests/engine/token_rig.h"
#include "tests/support/tiny_chat.h"

#include <criterion/criterion.h>
#include <string.h>

static Error error;

Test(answer_style, a_template_shows_its_form)
{
    static const struct {
        const char *chat, *format, *mark, *end, *pad;
        bool bare, tools, calls, two, lists, reasons;
    } cases[] = {
        {"calls", "generic", "<call>", "</call>", "", false, true, true, true, false, false},
        {"hermes", "hermes", "<tool_call>", "</tool_call>", "\n", false, true, true, true, false, true},
        {"opens", "hermes", "<tool_call>", "</tool_call>", "\n", false, true, true, true, false, true},
        {"coder", "qwen3-coder", "<tool_call>", "</tool_call>", "\n", false, true, true, true, false, true},
        {"glm", "glm", "<tool_call>", "</tool_call>", "", false, true, true, true, false, true},
        {"kimi", "kimi-k2", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "", false, true, true, true,
         false, true},
        {"deepseek", "deepseek-v3", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "", false, true, true, true,
         false, true},
        {"deepseek31", "deepseek-v3.1", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "", false, true, true, true,
         false, true},
        {"channels", "gpt-oss", "", "<|call|>", "", false, true, true, true, false, true},
        {"mistral", "mistral", "[TOOL_CALLS]", "", "", false, true, true, true, false, true},
        {"llama", "llama3-json", "", "", "", true, true, true, true, false, true},
        {"pythonic", "pythonic", "", "", "", true, true, false, false, true, true},
        {"gemma", "gemma", "<start_function_call>", "<end_function_call>", "", false, true, false, false, false, true},
        {"bare", "generic", "", "", "", true, false, false, false, false, false},
    };
    TokenRig rig = token_rig_new(1 << 16, 1 << 12);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *source = tiny_chat_template(cases[i].chat);
        ChatTemplate *chat_template;
        AnswerStyle style;
        cr_assert(chat_template_new(source, strlen(source), "", "<|im_end|>", &chat_template, &error), "%s",
                  error.text);
        cr_assert(answer_style_find(chat_template, rig.tokenizer, NULL, "auto", &style, &error), "%s", error.text);
        cr_expect_str_eq(style.format->name, cases[i].format, "%s", cases[i].chat);
        cr_expect_str_eq(style.marks[MARK_CALL].n ? style.marks[MARK_CALL].text : "", cases[i].mark, "%s",
                         cases[i].chat);
        cr_expect_str_eq(style.marks[MARK_CALL_END].text, cases[i].end, "%s", cases[i].chat);
        cr_expect(!strcmp(style.pad_before, cases[i].pad) && !strcmp(style.pad_after, cases[i].pad), "%s",
                  cases[i].chat);
        cr_expect_eq(style.bare != 0, cases[i].bare, "%s", cases[i].chat);
        cr_expect_eq(style.shows_tools, cases[i].tools, "%s", cases[i].chat);
        cr_expect_eq(style.shows_calls, cases[i].calls, "%s", cases[i].chat);
        cr_expect_eq(style.shows_two, cases[i].two, "%s", cases[i].chat);
        cr_expect_eq(style.lists_calls, cases[i].lists, "%s", cases[i].chat);
        cr_expect_eq(style.has_reasoning, cases[i].reasons, "%s", cases[i].chat);
        chat_template_free(chat_template);
    }
    token_rig_free(&rig);
}

Test(answer_style, options_name_a_form)
{
    TokenRig rig = token_rig_new(1 << 16, 1 << 12);
    AnswerStyle style;
    cr_assert(answer_style_find(NULL, rig.tokenizer, "mistral", "mistral", &style, &error));
    cr_expect(!strcmp(style.format->name, "mistral") && !strcmp(style.marks[MARK_THINK].text, "[THINK]"));
    cr_expect_eq(style.marks[MARK_THINK].id, TOK_NONE);
    cr_assert(answer_style_find(NULL, rig.tokenizer, "hermes", "none", &style, &error));
    cr_expect_not(style.has_reasoning);
    cr_assert_not(answer_style_find(NULL, rig.tokenizer, "morse", NULL, &style, &error));
    cr_expect(error.code == ERR_INVALID && !strcmp(error.param, "tool_format"));
    cr_expect(strstr(error.text, "hermes, ") && strstr(error.text, ", generic)"), "all are named: %s", error.text);
    cr_assert_not(answer_style_find(NULL, rig.tokenizer, NULL, "aloud", &style, &error));
    cr_expect(error.code == ERR_INVALID && !strcmp(error.param, "reasoning_format"));
    cr_expect(strstr(error.text, "none, ") && strstr(error.text, ", seed)"), "all are named: %s", error.text);
    token_rig_free(&rig);
}
