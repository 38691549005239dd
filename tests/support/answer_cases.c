/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/answer_cases.h"

#include <stdlib.h>
#include <string.h>

static const MemberKinds weather_kinds[] = {{"city", KIND_STRING}};

const ToolSpec answer_case_tools[2] = {{"weather", {weather_kinds, 1, KINDS_ALL}}, {"add", {.others = KINDS_ALL}}};

const AnswerCase answer_cases[] = {
    {"hermes", "none", "Hello <b>world</b>.\n", "C(Hello <b>world</b>.\n)", 0, 0},
    {"hermes", "none", "", "", 0, 0},
    {"hermes", "none", " \n", "C( \n)", 0, 0},
    {"hermes", "none",
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Zürich \\\"}{\"}}\n</tool_call>",
     "weather({\"city\": \"Zürich \\\"}{\"})", 0, 0},
    {"hermes", "none",
     "I look.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1, {\"b\": 2}]}}\n</tool_call>\n",
     "C(I look.)add({\"a\": [1, {\"b\": 2}]})", 0, 0},
    {"hermes", "none",
     "I "
     "look.\n\n<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call><tool_call>{\"arguments\":{\"a\":1},\"name\":"
     "\"weather\"}</tool_call>",
     "C(I look.\n)add({})weather({\"a\":1})", 0, 0},
    {"hermes", "none",
     "<tool_call>{\"name\":\"add\",\"arguments\":\"{\\\"a\\\":\\\"\\u00e9\\ud83d\\ude00\\\"}\"}</tool_call> then",
     "add({\"a\":\"é😀\"})C(then)", 0, 0},
    {"hermes", "none",
     "<tool_call>{\"type\":\"function\",\"function\":{\"name\":\"add\",\"arguments\":{\"a\":1}},\"id\":[1]}</"
     "tool_call>",
     "add({\"a\":1})", 0, 0},
    {"hermes", "none", "<tool_call>{\"name\":\"add\"}</tool_call>", "add({})", 0, 0},
    {"hermes", "none", "<tool_call>{\"name\":\"add\",\"arguments\":null}</tool_call>", "add({})", 0, 0},
    {"hermes", "none", "<tool_call>[{\"name\":\"add\"}, {\"name\":\"weather\",\"arguments\":{\"a\":1}}]</tool_call>",
     "add({})weather({\"a\":1})", 0, 0},
    {"hermes", "none", "<tool_call>{\"name\":\"other\",\"arguments\":{}}</tool_call>",
     "C(<tool_call>{\"name\":\"other\",\"arguments\":{}}</tool_call>)", 0, 0},
    {"hermes", "none", "a\n <tool_call> b <tool_call><tool_call>{\"name\":\"add\"}",
     "C(a\n <tool_call> b <tool_call>)add({})", 0, 0},
    {"hermes", "none", "x <tool_call>{\"na", "C(x <tool_call>{\"na)", 0, 0},
    {"hermes", "none", "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":\"b", "add({\"a\":\"b)", 0, 0},
    {"hermes", "none", "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1} oops</tool_call>",
     "add({\"a\":1})C(oops</tool_call>)", 0, 0},
    {"hermes", "none", "<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_", "add({})", 0, 0},
    {"hermes", "none", "<tool_call>{\"name\":\"add\"}</tool_call><tool_call>{\"name\":\"add\"}</tool_call>tail",
     "add({})", 0, 1},
    {"hermes", "none", "<tool_call>[{\"name\":\"add\"},{\"name\":\"weather\"}]</tool_call>tail", "add({})", 0, 1},
    {"hermes", "think", "<think>\n Let me <tool_call> see.\n\n</think>\n\nIt <think> is.",
     "R(Let me <tool_call> see.)C(It <think> is.)", 0, 0},
    {"hermes", "think", "hm\n\n x </think>\n<tool_call>{\"name\":\"add\"}</tool_call>", "R(hm\n\n x)add({})", 1, 0},
    {"hermes", "think", "<think>\nagain</think>yes", "R(again)C(yes)", 1, 0},
    {"hermes", "think", "cut off \n </thi", "R(cut off \n </thi)", 1, 0},
    {"hermes", "think", "<think>\n\n</think>\n\nno thought", "C(no thought)", 0, 0},
    {"hermes", "think", "\n\n<think>é</think>ü", "R(é)C(ü)", 0, 0},
    {"hermes", "think", "no <think>thought</think>", "C(no <think>thought</think>)", 0, 0},
    {"qwen3-coder", "none",
     "I do.\n<tool_call>\n<function=weather>\n<parameter=city>\nNew "
     "\"York\"\n</p>\n\n</parameter>\n<parameter=days>\n3\n"
     "</parameter>\n<parameter=deep>\n{\"a\": "
     "[1]}\n</parameter>\n<parameter=ok>True</parameter>\n</function>\n</tool_call>",
     "C(I do.)weather({\"city\": \"New \\\"York\\\"\\n</p>\\n\", \"days\": 3, \"deep\": {\"a\": [1]}, \"ok\": true})",
     0, 0},
    {"qwen3-coder", "none", "<function=add>\n</function>\n</tool_call>", "add({})", 0, 0},
    {"qwen3-coder", "none", "<function=add><parameter=a>x y</parameter></function>", "add({\"a\": \"x y\"})", 0, 0},
    {"qwen3-coder", "none",
     "<tool_call><function=weather><parameter=city>\n12\n</parameter></function></tool_call><tool_call><function=add>"
     "<parameter=a>\n\n</parameter></function></tool_call>",
     "weather({\"city\": \"12\"})add({\"a\": \"\"})", 0, 0},
    {"qwen3-coder", "none", "<tool_call>\n<function=who>", "C(<tool_call>\n<function=who>)", 0, 0},
    {"qwen3-coder", "none", "<tool_call><function=weather><parameter=city>\nOs", "weather({\"city\": \"Os)", 0, 0},
    {"qwen3-coder", "none", "<tool_call><function=add>stop</function></tool_call>",
     "add({})C(stop</function></tool_call>)", 0, 0},
    {"qwen3-coder", "none", "<tool_call><function=add><para</tool_call>", "add({})C(<para</tool_call>)", 0, 0},
    {"qwen3-coder", "none",
     "<tool_call><function=add><parameter=a>\nnull\n</parameter><parameter=b>\n\"x\"\n</parameter><parameter=c>\n01\n"
     "</parameter><parameter=d>\n {}\n</parameter></function></tool_call>",
     "add({\"a\": null, \"b\": \"x\", \"c\": \"01\", \"d\": \" {}\"})", 0, 0},
    {"glm", "none",
     "I do.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>New\n<b>\"York\"</arg_value>\n<arg_key>first "
     "name</arg_key>\n<arg_value>[1, \"a\"]</arg_value>\n</tool_call>\n<tool_call>add</tool_call>",
     "C(I do.)weather({\"city\": \"New\\n<b>\\\"York\\\"\", \"first name\": [1, \"a\"]})add({})", 0, 0},
    {"glm", "none", "<tool_call>add<arg_key>a</arg_key><arg_value>x</arg_value></tool_call>after",
     "add({\"a\": \"x\"})C(after)", 0, 0},
    {"glm", "none", "<tool_call>add\n<arg_key>a</arg_key>oops</tool_call>", "add({\"a\": null})C(oops</tool_call>)", 0,
     0},
    {"glm", "think", "<think></think>\n<tool_call>other\n</tool_call>", "C(<tool_call>other\n</tool_call>)", 0, 0},
    {"kimi-k2", "think",
     "<think>hm</"
     "think>So.<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
     "{\"city\": \"}\"}<|tool_call_end|>\n<|tool_call_begin|>\nadd:12<|tool_call_argument_begin|>\n{}\n"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "R(hm)C(So.)weather({\"city\": \"}\"})add({})", 0, 0},
    {"kimi-k2", "none",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|> and",
     "add({})C(and)", 0, 0},
    {"kimi-k2", "none", "<|tool_calls_section_begin|><|tool_call_begin|>functions.sub:0<|tool_call_argument_begin|>{}",
     "C(<|tool_calls_section_begin|><|tool_call_begin|>functions.sub:0<|tool_call_argument_begin|>{})", 0, 0},
    {"kimi-k2", "none",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_call_begin|>functions.add:1<|tool_call_argument_begin|>{\"a\"",
     "add({})add({\"a\")", 0, 0},
    {"kimi-k2", "none",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_call_begin|>functions.add:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     "add({})", 0, 1},
    {"deepseek-v3", "think",
     "hm</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": "
     "\"A\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{}\n```<"
     "｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>",
     "R(hm)weather({\"city\": \"A\"})add({})", 1, 0},
    {"deepseek-v3.1", "none",
     "Look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": "
     "{}}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "C(Look.)add({\"a\": {}})", 0, 0},
    {"mistral", "none",
     "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"A]\"}, \"id\": \"123456789\"}, "
     "{\"name\":\"add\",\"arguments\":{}}]",
     "weather({\"city\": \"A]\"})add({})", 0, 0},
    {"mistral", "none",
     "Yes.[TOOL_CALLS]weather[ARGS]{\"city\": \"B\"}[TOOL_CALLS]add[CALL_ID]abc123def[ARGS]{\"a\": 1}",
     "C(Yes.)weather({\"city\": \"B\"})add({\"a\": 1})", 0, 0},
    {"mistral", "none", "[TOOL_CALLS]weather{\"city\": \"B\"}", "weather({\"city\": \"B\"})", 0, 0},
    {"mistral", "none", "[TOOL_CALLS] add [ARGS]", "add()", 0, 0},
    {"mistral", "none", "[TOOL_CALLS]nobody[ARGS]{}", "C([TOOL_CALLS]nobody[ARGS]{})", 0, 0},
    {"mistral", "mistral", "[THINK]so[/THINK][TOOL_CALLS]add[ARGS]{}", "R(so)add({})", 0, 0},
    {"llama3-json", "none", "{\"name\": \"weather\", \"parameters\": {\"city\": \"C\"}}", "weather({\"city\": \"C\"})",
     0, 0},
    {"llama3-json", "none",
     "<|python_tag|>{\"type\": \"function\", \"name\": \"add\", \"parameters\": {\"a\": 1}}; {\"name\": \"weather\", "
     "\"parameters\": {}}",
     "add({\"a\": 1})weather({})", 0, 0},
    {"llama3-json", "none", "{\"name\": \"Bob\", \"age\": 3}", "C({\"name\": \"Bob\", \"age\": 3})", 0, 0},
    {"llama3-json", "none", "\n {\"age\": 3}", "C(\n {\"age\": 3})", 0, 0},
    {"llama3-json", "none", "Here: {\"name\": \"add\", \"parameters\": {}}",
     "C(Here: {\"name\": \"add\", \"parameters\": {}})", 0, 0},
    {"llama3-json", "none", "{\"name\": \"add\", \"parameters\": {\"a\": \"x", "add({\"a\": \"x)", 0, 0},
    {"llama3-json", "none", "<|python_tag|>print(1)", "C(<|python_tag|>print(1))", 0, 0},
    {"pythonic", "none",
     "[weather(city='Zü\\'\\n\"\\u00e9', days=3), add(a=[1, 'x'], b={'k': None, 'l': (True, 2.5)}, c=-1e3)]",
     "weather({\"city\": \"Zü'\\n\\\"é\", \"days\": 3})add({\"a\": [1, \"x\"], \"b\": {\"k\": null, \"l\": [true, "
     "2.5]}, \"c\": -1e3})",
     0, 0},
    {"pythonic", "none", "[add()]", "add({})", 0, 0},
    {"pythonic", "none", "[1, 2, 3]", "C([1, 2, 3])", 0, 0},
    {"pythonic", "none", "[link](http://a)", "C([link](http://a))", 0, 0},
    {"pythonic", "none", "[add(a=.5, b=01, c=word, d=)]",
     "add({\"a\": \".5\", \"b\": \"01\", \"c\": \"word\", \"d\": null})", 0, 0},
    {"pythonic", "none", "[add(a=1), who()]", "add({\"a\": 1})C(who()])", 0, 0},
    /* what is not Python ends the call, and what it has told is JSON all the same */
    {"pythonic", "none", "[add(a=[1, 2,], b={'k' : (3,), 5 : None,})]",
     "add({\"a\": [1, 2], \"b\": {\"k\": [3], \"5\": null}})", 0, 0},
    {"pythonic", "none", "[add(a=[1 2])]", "add({\"a\": [1]})C(2])])", 0, 0},
    {"pythonic", "none", "[add(a=[1}, b=2)]", "add({\"a\": [1]})C(}, b=2)])", 0, 0},
    {"pythonic", "none", "[add(a={1, 2})]", "add({\"a\": {\"1\": null}})C(, 2})])", 0, 0},
    {"pythonic", "none", "[add(a=[{'b': [!", "add({\"a\": [{\"b\": []}]})C(!)", 0, 0},
    {"gemma", "none", "<start_function_call>call:add{a:{b:,}}<end_function_call>",
     "add({\"a\": {\"b\": null}})C(,}}<end_function_call>)", 0, 0},
    {"qwen3-coder", "none",
     "<function=add><parameter=a>[\"x\ny\"]</parameter><parameter=b>[01]</parameter><parameter=c>[\x01 2]</parameter>"
     "</function>",
     "add({\"a\": [\"x\\ny\"], \"b\": \"[01]\", \"c\": \"[\\u0001 2]\"})", 0, 0},
    {"lfm2", "none", "Sure.\n<|tool_call_start|>[weather(city=\"D\")]<|tool_call_end|>Done.",
     "C(Sure.)weather({\"city\": \"D\"})C(Done.)", 0, 0},
    {"gemma", "none",
     "<start_function_call>call:weather{city:<escape>E, "
     "\"f\"}<escape>,days:3,more:{x:[<escape>a<escape>,true]}}<end_function_call>",
     "weather({\"city\": \"E, \\\"f\\\"}\", \"days\": 3, \"more\": {\"x\": [\"a\", true]}})", 0, 0},
    {"gemma", "none",
     "<start_function_call>call:add{}<end_function_call><start_function_call>call:add{a:1}<end_function_call>",
     "add({})add({\"a\": 1})", 0, 0},
    {"gemma4", "gemma4", "<|channel>thought\nhm<channel|><|tool_call>call:add{a:<|\"|>x<|\"|>}<tool_call|>",
     "R(hm)add({\"a\": \"x\"})", 0, 0},
    {"gpt-oss", "gpt-oss",
     "<|channel|>analysis<|message|> Let me <|call> see. <|end|><|start|>assistant<|channel|>final<|message|>Hello "
     "<b>.\n",
     "R(Let me <|call> see.)C(Hello <b>.\n)", 0, 0},
    {"gpt-oss", "gpt-oss",
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant"
     "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"A<|call|>\"}<|call|>",
     "R(a\nb)weather({\"city\": \"A<|call|>\"})", 0, 0},
    {"gpt-oss", "none",
     "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.add "
     "<|constrain|>json<|message|>{}<|call|><|start|>assistant to=add<|channel|>commentary<|message|>{\"a\":1}",
     "C(I look.)add({})add({\"a\":1})", 0, 0},
    {"gpt-oss", "none", " to=functions.add<|channel|>commentary json<|message|>\n{}<|call|>", "add({})", 0, 0},
    {"gpt-oss", "gpt-oss", " Hello <b>", "C( Hello <b>)", 0, 0},
    {"gpt-oss", "gpt-oss", "<|chan", "", 0, 0},
    {"gpt-oss", "gpt-oss", " t", "C( t)", 0, 0},
    {"gpt-oss", "gpt-oss", "<|channel|>final<|message|>one<|end|>two ", "C(one\ntwo )", 0, 0},
    {"gpt-oss", "gpt-oss", "<|channel|>final<|message|>one<|end|>\n", "C(one)", 0, 0},
    {"gpt-oss", "gpt-oss", "<|channel|>analysis<|message|>a<|end|> It is b.<|sta", "R(a)C(It is b.)", 0, 0},
    {"gpt-oss", "gpt-oss", "<|channel|>final<|message|>one<|end|>two<|start|>assistant<|channel|>final<|message|>three",
     "C(one\ntwo\nthree)", 0, 0},
    {"gpt-oss", "gpt-oss", "<|channel|>analysis<|message|>a<|end|>assistant<|channel|>final<|message|>b", "R(a)C(b)", 0,
     0},
    {"gpt-oss", "none",
     "<|channel|>analysis<|message|>a<|end|>assistant to=functions.add<|channel|>x<|message|>{}<|call|>b",
     "C(a)add({})C(\nb)", 0, 0},
    {"gpt-oss", "gpt-oss", "<|channel|>fin", "", 0, 0},
    {"gpt-oss", "none", "<|channel|>commentary to=functions.sub <|constrain|>json<|message|>{}<|call|>", "C({})", 0, 0},
    {"gpt-oss", "gpt-oss", "hm<|end|><|start|>assistant<|channel|>final<|message|>yes", "R(hm)C(yes)", 1, 0},
    {"gpt-oss", "gpt-oss", "<|channel|>analysis<|message|>cut <|en", "R(cut <|en)", 0, 0},
    {"gpt-oss", "none", "<|channel|>commentary to=functions.add<|message|>oops<|end|>", "add()C(oops)", 0, 0},
    {"gpt-oss", "none",
     "<|channel|>commentary to=functions.add<|message|>{}<|call|><|start|>assistant<|channel|>commentary "
     "to=functions.add<|message|>{}",
     "add({})", 0, 1},
    {"generic", "none", "{\"name\": \"add\", \"arguments\": {\"a\": 1}}", "add({\"a\": 1})", 0, 0},
    {"generic", "none", "{\"name\":\"add\",\"arguments\": {\"a\": 1}} and", "add({\"a\": 1})C(and)", 0, 0},
    {"generic", "none", "{ \"name\": \"add\"}", "C({ \"name\": \"add\"})", 0, 0},
    {"generic", "none", "{\"arguments\":{},\"name\": \"add\"}", "C({\"arguments\":{},\"name\": \"add\"})", 0, 0},
};

const size_t n_answer_cases = sizeof answer_cases / sizeof *answer_cases;

AnswerPlan answer_case_plan(const AnswerCase *one, AnswerStyle *style)
{
    Error error;
    if (!answer_style_find(NULL, NULL, one->format, one->reasoning, style, &error)) abort();
    return (AnswerPlan){.style = style,
                        .splits_reasoning = style->has_reasoning,
                        .begins_in_reasoning = one->begins_in_reasoning,
                        .tools = answer_case_tools,
                        .n_tools = 2,
                        .max_calls = one->max_calls};
}

void answer_case_show(const AnswerParts *parts, Buffer *shown)
{
    static const char *const signs[] = {[PART_CONTENT] = "C", [PART_REASONING] = "R", [PART_CALL] = ""};
    Error error;
    const char *text = parts->text.data;
    bool ok = true, is_call = false;
    for (uint32_t i = 0; i < parts->n; text += parts->items[i++].n_bytes) {
        const AnswerPart *part = &parts->items[i];
        if (part->kind != PART_ARGUMENTS) {
            if (is_call) ok = ok && buffer_append_text(shown, ")", &error);
            ok = ok && buffer_append_text(shown, signs[part->kind], &error);
            if (part->kind != PART_CALL) ok = ok && buffer_append_text(shown, "(", &error);
        }
        ok = ok && buffer_append(shown, text, part->n_bytes, &error);
        if (part->kind == PART_CALL) ok = ok && buffer_append_text(shown, "(", &error);
        is_call = part->kind == PART_CALL || part->kind == PART_ARGUMENTS;
        if (!is_call) ok = ok && buffer_append_text(shown, ")", &error);
    }
    if (is_call) ok = ok && buffer_append_text(shown, ")", &error);
    if (!ok) abort();
}
