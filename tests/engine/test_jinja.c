/* SPDX-License-Identifier: Apache-2.0 */
/* What jinja2 cannot tell: limits, error lines, who wrote which byte, and what longwave lets templates do beyond it. */
#include "engine/text/jinja.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const JinjaLimits limits = {.max_text_bytes = 1 << 20, .max_memory_bytes = 8 << 20, .max_steps = 200000};

typedef struct Rendered {
    bool ok;
    Error error;
    char text[4096];
    char marks[4096]; /* 't' template, 'i' input */
} Rendered;

static void keep(Rendered *r, JText text)
{
    cr_assert_lt(text.n, sizeof r->text);
    if (text.n) memcpy(r->text, text.data, text.n);
    for (size_t i = 0; i < text.n; i++) r->marks[i] = text.marks && text.marks[i] ? 'i' : 't';
}

static Rendered render_with(const char *source, size_t n, const char *context, JinjaLimits with)
{
    Rendered r = {0};
    JinjaProgram *program;
    JinjaRun *run;
    JText text = {0};
    if (!jinja_parse(source, n, &program, &r.error)) return r;
    cJSON *json = cJSON_Parse(context);
    cr_assert(json);
    cr_assert(jinja_run_new(&with, 0, &run, &r.error));
    r.ok = true;
    for (const cJSON *item = json->child; r.ok && item; item = item->next) {
        JValue value;
        r.ok = jinja_from_json(run, item, &value) && jinja_run_set(run, item->string, value);
    }
    r.ok = r.ok && jinja_render(run, program, &text);
    if (r.ok) keep(&r, text);
    jinja_run_free(run);
    jinja_program_free(program);
    cJSON_Delete(json);
    return r;
}

static Rendered render(const char *source, const char *context)
{
    return render_with(source, strlen(source), context, limits);
}

static void fails_with(const char *source, const char *message)
{
    Rendered r = render(source, "{\"s\": \"text\", \"l\": [1, 2], \"d\": {\"k\": 1}}");
    cr_expect(!r.ok, "%s renders", source);
    cr_expect_eq(r.error.code, ERR_TEMPLATE);
    cr_expect_str_eq(r.error.text, message);
}

/* ---- errors ---- */

Test(test_jinja, parse_errors_name_line_and_thing)
{
    fails_with("a\n{% nope %}", "line 2: unknown statement 'nope'");
    fails_with("a\n\n{{ s | shout }}", "line 3: no filter named 'shout'");
    fails_with("{{ s is shouted }}", "line 1: no test named 'shouted'");
    fails_with("{% if s %}\n\n{{ s }", "line 3: unexpected '}'");
    fails_with("{% if s %}\n\nx", "line 3: the template ends where 'endif' is missing");
    fails_with("{{ 'abc }}", "line 1: a string does not end");
    fails_with("{{ 99999999999999999999 }}", "line 1: a number does not fit 64 bits");
    fails_with("{% continue %}", "line 1: 'continue' outside of a loop");
    fails_with("{{ s ? 1 }}", "line 1: unexpected character '?'");
    fails_with("{# x", "line 1: missing end of comment");
    fails_with("\n{% for x in l %}{% endif %}", "line 2: unknown statement 'endif'");
    fails_with("{{ '\\x4' }}", "line 1: malformed escape in a string");
}

Test(test_jinja, run_time_errors_name_the_line)
{
    fails_with("x\n{{ nope.field }}", "line 2: 'nope' is undefined");
    fails_with("{{ d.nope.field }}", "line 1: 'dict object' has no attribute 'nope'");
    fails_with("\n\n{{ s + 1 }}", "line 3: can only concatenate str (not \"int\") to str");
    fails_with("{% if s %}\n{{ s | shout }}\n{% endif %}", "line 2: no filter named 'shout'");
    fails_with("{{ 9223372036854775807 + 1 }}", "line 1: an integer does not fit 64 bits");
    fails_with("{{ 2 ** 63 }}", "line 1: an integer does not fit 64 bits");
    fails_with("{{ (-9223372036854775807 - 1) // -1 }}", "line 1: an integer does not fit 64 bits");
    fails_with("{{ 1 % 0 }}", "line 1: division by zero");
    fails_with("{{ s.nope() }}", "line 1: 'str object' has no attribute 'nope'");
    fails_with("{{ shout() }}", "line 1: 'shout' is undefined");
    fails_with("{{ s | replace('a') }}", "line 1: replace() lacks an argument");
    fails_with("{{ s | trim('a', 'b') }}", "line 1: trim() takes at most 1 arguments, got 2");
    fails_with("{{ s | trim(nope=1) }}", "line 1: trim() has no parameter 'nope'");
}

Test(test_jinja, raised_message_stands_alone)
{
    fails_with("\n\n{{ raise_exception('Roles must alternate: ' ~ s) }}", "Roles must alternate: text");
}

/* ---- limits ---- */

static char *nested(const char *open, const char *close, size_t n)
{
    size_t n_open = strlen(open), n_close = strlen(close), at = 0;
    char *text = malloc((n_open + n_close) * n + 1);
    cr_assert(text);
    for (size_t i = 0; i < n; i++, at += n_open) memcpy(text + at, open, n_open);
    for (size_t i = 0; i < n; i++, at += n_close) memcpy(text + at, close, n_close);
    text[at] = '\0';
    return text;
}

/* Each form of nesting, up to 60,000 deep: an error, not a stack that ran over. */
Test(test_jinja, deep_nesting_is_refused)
{
    static const char *const forms[][4] = {
        {"{{ ", "(", ")", " }}"},
        {"{{ ", "[", "]", " }}"},
        {"{{ ", "{1:", "}", " }}"},
        {"{{ ", "not ", "", "1 }}"},
        {"{{ ", "-", "", "1 }}"},
        {"{{ ", "1+", "", "1 }}"},
        {"{{ ", "1 if 1 else ", "", "1 }}"},
        {"{{ ", "1 and ", "", "1 }}"},
        {"{{ s", ".a", "", " }}"},
        {"{{ s", "|trim", "", " }}"},
        {"{{ s", "[0]", "", " }}"},
        {"{{ s", "()", "", " }}"},
        {"{{ ", "s(", ")", " }}"},
        {"{{ ", "l[", "]", " }}"},
        {"", "{% if s %}", "{% endif %}", ""},
        {"", "{% for x in l %}", "{% endfor %}", ""},
        {"", "{% set x %}", "{% endset %}", ""},
        {"", "{% filter trim %}", "{% endfilter %}", ""},
        {"", "{% macro m() %}", "{% endmacro %}", ""},
        {"{% set ", "(", ")", " = 1 %}"},
        {"{% for ", "(", ")", " in l %}{% endfor %}"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        size_t n = 1000000 / (strlen(forms[i][1]) + strlen(forms[i][2])); /* the source may have a million bytes */
        char *middle = nested(forms[i][1], forms[i][2], n < 60000 ? n : 60000);
        size_t size = strlen(middle) + 64;
        char *source = malloc(size);
        cr_assert(source);
        snprintf(source, size, "%s%s%s", forms[i][0], middle, forms[i][3]);
        Rendered r = render(source, "{\"s\": \"x\", \"l\": []}");
        cr_expect(!r.ok && r.error.code == ERR_TEMPLATE, "form %zu", i);
        free(source);
        free(middle);
    }
}

/* A text that grows piece by piece costs its length, not its square; what it was before stays as it was. */
Test(test_jinja, growing_texts)
{
    Rendered r =
        render("{% set ns = namespace(a='', b='') %}{% for i in range(9000) %}{% set ns.a = ns.a + '0123456789' %}"
               "{% set ns.b = ns.b ~ i ~ '-' ~ u %}{% endfor %}{{ ns.a|length }},{{ ns.b|length }}",
               "{\"u\": \"user\"}");
    cr_expect_str_eq(r.text, "90000,79890", "%s%s", r.text, r.error.text);
    r = render(
        "{% set a = 'x' ~ u %}{% set b = a ~ '1' %}{% set c = a ~ '2' %}{% set d = b[:2] ~ '3' %}{% set e = b + b %}"
        "{{ a }},{{ b }},{{ c }},{{ d }},{{ e }}",
        "{\"u\": \"u\"}");
    cr_expect_str_eq(r.text, "xu,xu1,xu2,xu3,xu1xu1");
    cr_expect_str_eq(r.marks, "tittitttitttitttittit");
}

/* Long is not deep. */
Test(test_jinja, long_flat_templates_render)
{
    char *ands = nested("{% if s %}{% elif s == 'x' %}{% endif %}", "", 5000);
    Rendered r = render(ands, "{\"s\": \"\"}");
    cr_expect(r.ok, "%s", r.error.text);
    free(ands);
    char *tildes = nested("~ 'a' ", "", 3000);
    size_t size = strlen(tildes) + 64;
    char *source = malloc(size);
    cr_assert(source);
    snprintf(source, size, "{%% set x = '' %s %%}{{ x|length }}", tildes);
    r = render(source, "{}");
    cr_expect_str_eq(r.text, "3000");
    free(source);
    free(tildes);
}

Test(test_jinja, recursion_ends)
{
    fails_with("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "line 1: the template recurses too deeply");
    fails_with("{% macro m(x) %}{% for i in [1] %}{% if x %}{% set y %}{{ m([x]) }}{% endset %}{% endif %}{% endfor %}"
               "{% endmacro %}{{ m(1) }}",
               "line 1: the template recurses too deeply");
    fails_with("{% for x in [l] recursive %}{{ loop([l]) }}{% endfor %}", "line 1: the template recurses too deeply");
}

/* A list in itself, which only longwave's append can make. */
Test(test_jinja, circular_values_end)
{
    fails_with("{% set a = [] %}{% set _ = a.append(a) %}{{ a }}", "line 1: a value is nested too deeply to print");
    fails_with("{% set a = [] %}{% set _ = a.append(a) %}{{ a|tojson }}",
               "line 1: a value is nested too deeply for JSON");
    fails_with("{% set a = [] %}{% set b = [a] %}{% set _ = a.append(b) %}{{ a == b }}",
               "line 1: values are nested too deeply to compare");
    fails_with("{% set a = [] %}{% set b = [a] %}{% set _ = a.append(b) %}{{ a < b }}",
               "line 1: values are nested too deeply to compare");
}

Test(test_jinja, steps_are_bounded)
{
    fails_with("{% set r = range(999) %}{% for a in r %}{% for b in r %}{{ b }}{% endfor %}{% endfor %}",
               "line 1: the template takes too many steps");
    fails_with("{% set a = [0] %}{% for x in range(99999) %}{% set _ = a.extend(a) %}{% endfor %}",
               "line 1: the template needs more than 8388608 bytes of memory");
    fails_with("{{ 'a' * 999999999 }}", "line 1: the template takes too many steps");
    fails_with("{{ ([1] * 4000) * 4000 }}", "line 1: the template needs more than 8388608 bytes of memory");
}

/* The sender of a request names variables; a step is little work, whatever texts it is done on. */
Test(test_jinja, steps_count_what_is_looked_through)
{
    enum { VARIABLES = 8000 };
    char *context = malloc(VARIABLES * 16);
    size_t n = 0;
    for (int i = 0; i < VARIABLES; i++) n += (size_t)sprintf(context + n, "%c\"v%05d\":%d", i ? ',' : '{', i, i % 10);
    strcpy(context + n, "}");
    Rendered r = render("x", context);
    cr_expect(!r.ok);
    cr_expect_str_eq(r.error.text, "the template takes too many steps");
    free(context);
    fails_with("{{ ('a' * 65536).rpartition('b' * 32768) }}", "line 1: the template takes too many steps");
    fails_with("{{ ('a' * 65536)|trim('b' * 32768) }}", "line 1: the template takes too many steps");
}

Test(test_jinja, output_and_texts_are_bounded)
{
    JinjaLimits small = limits;
    small.max_text_bytes = 100;
    const char *source = "{% for i in range(101) %}x{% endfor %}";
    Rendered r = render_with(source, strlen(source), "{}", small);
    cr_expect(!r.ok);
    cr_expect_str_eq(r.error.text, "line 1: the template makes a text of more than 100 bytes");
    source = "{% for i in range(100) %}x{% endfor %}";
    cr_expect(render_with(source, strlen(source), "{}", small).ok);
    source = "{% set x = 'a' * 101 %}";
    cr_expect(!render_with(source, strlen(source), "{}", small).ok);
}

Test(test_jinja, source_is_bounded)
{
    size_t n = JINJA_MAX_SOURCE_BYTES + 1;
    char *source = calloc(1, n + 1);
    cr_assert(source);
    memset(source, 'a', n);
    cr_expect(!render_with(source, n, "{}", limits).ok);
    free(source);
}

/* Input objects whose keys all collide, or which are very deep, end in an error or a result, never in hours. */
Test(test_jinja, large_and_deep_inputs)
{
    char *deep = nested("[", "]", 900);
    size_t size = strlen(deep) + 32;
    char *context = malloc(size);
    cr_assert(context);
    snprintf(context, size, "{\"x\": %s}", deep);
    Rendered r = render("{{ x }}", context);
    cr_expect_str_eq(r.error.text, "the input is nested too deeply");
    free(context);
    free(deep);

    cJSON *json = cJSON_CreateObject(), *object = cJSON_AddObjectToObject(json, "x");
    char key[16];
    for (int i = 0; i < 2000; i++) {
        snprintf(key, sizeof key, "k%d", i);
        cJSON_AddNumberToObject(object, key, i);
    }
    char *text = cJSON_PrintUnformatted(json);
    r = render("{{ x.k1999 }},{{ x|length }},{{ 'k7' in x }},{{ 'z' in x }}", text);
    cr_expect_str_eq(r.text, "1999,2000,True,False");
    cJSON_free(text);
    cJSON_Delete(json);
}

Test(test_jinja, bytes_that_are_not_utf8)
{
    static const char source[] =
        "{{ s }}|{{ s|length }}|{{ s[1] }}|{{ s|upper }}|{{ s[::-1] }}|{{ s|trim|tojson }}\xff{{ '\xfe' }}";
    Rendered r = render(source, "{\"s\": \"a\xff\xc3z\"}");
    cr_expect(r.ok);
    cr_expect_str_eq(r.text, "a\xff\xc3z|4|\xff|A\xff\xc3Z|z\xc3\xff"
                             "a|\"a\xff\xc3z\"\xff\xfe");
    static const char nul[] = "a\0b{{ 'c\0d'|length }}";
    r = render_with(nul, sizeof nul - 1, "{}", limits);
    cr_expect(r.ok);
    cr_expect_eq(memcmp(r.text, "a\0b3", 4), 0);
}

/* ---- who wrote it ---- */

static void marks_are(const char *source, const char *text, const char *marks)
{
    Rendered r = render(source, "{\"u\": \"Ab <c\", \"l\": [\"x\", \"y\"], \"d\": {\"k\": \"v\"}, \"n\": 12}");
    cr_expect(r.ok, "%s: %s", source, r.error.text);
    cr_expect_str_eq(r.text, text, "%s: text %s", source, r.text);
    cr_expect_str_eq(r.marks, marks, "%s: marks %s", source, r.marks);
}

Test(test_jinja, marks_follow_text)
{
    marks_are("t{{ u }}t", "tAb <ct", "tiiiiit");
    marks_are("{{ 'p' + u + 's' }}", "pAb <cs", "tiiiiit");
    marks_are("{{ 'p' ~ u ~ 1 }}", "pAb <c1", "tiiiiit");
    marks_are("{{ ('p' ~ u ~ 's')[::-1] }}", "sc< bAp", "tiiiiit");
    marks_are("{{ ('p' ~ u)[:3] }}", "pAb", "tii");
    marks_are("{{ ('p' ~ u)[1] }}", "A", "i");
    marks_are("{{ ('p ' ~ u)|upper }}", "P AB <C", "ttiiiii");
    marks_are("{{ ('p ' ~ u).split() | join('+') }}", "p+Ab+<c", "ttiitii");
    marks_are("{{ ('  ' ~ u)|trim }}", "Ab <c", "iiiii");
    marks_are("{{ u.replace('b', '<|s|>') }}", "A<|s|> <c", "itttttiii");
    marks_are("{{ 'xbx'.replace('b', u) }}", "xAb <cx", "tiiiiit");
    marks_are("{{ l|join('-') }}", "x-y", "iti");
    marks_are("{{ d }}", "{'k': 'v'}", "ttittttitt");
    marks_are("{{ d|tojson }}", "{\"k\": \"v\"}", "ttittttitt");
    marks_are("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", "k=v", "iti");
    marks_are("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(u) }}{{ m('t') }}", "<Ab <c><t>", "tiiiiitttt");
    marks_are("{% set x %}a{{ u }}{% endset %}{{ x }}", "aAb <c", "tiiiii");
    marks_are("{% filter upper %}a{{ u }}{% endfilter %}", "AAB <C", "tiiiii");
    marks_are("{% set ns = namespace(x='') %}{% set ns.x = ns.x ~ u %}{{ ns.x }}", "Ab <c", "iiiii");
    marks_are("{{ '%s|%5s' % (u, 'a') }}", "Ab <c|    a", "iiiiitttttt");
    marks_are("{{ '{}{}'.format('q', u) }}", "qAb <c", "tiiiii");
    marks_are("{{ u|e }}", "Ab &lt;c", "iiiiiiii");
    marks_are("{{ ('a\n' ~ u)|indent(1) }}", "a\n Ab <c", "tttiiiii");
    marks_are("{{ n }}{{ u|length }}", "125", "ttt");
    cr_expect_str_eq(render("{{ e }}{{ e|length }}", "{\"e\": \"\"}").text, "0"); /* the first string of all, empty */
    marks_are("{% for c in u %}{{ c }}{% endfor %}", "Ab <c", "iiiii");
    marks_are("{{ (u ~ '\\n')|tojson }}", "\"Ab <c\\n\"", "tiiiiittt");
    marks_are("{{ '[\"a\"]'|from_json|first }}{{ 'x'|default(u) }}", "ax", "it");
}

/* ---- beyond jinja2's sandbox ---- */

Test(test_jinja, lists_and_dictionaries_change_in_place)
{
    Rendered r =
        render("{% set a = [1] %}{% set _ = a.append(2) %}{% set _ = a.insert(0, 0) %}{% set _ = a.extend([3, 4]) %}"
               "{{ a }}{{ a.pop() }}{{ a.pop(0) }}{% set _ = a.remove(2) %}{% set _ = a.reverse() %}{{ a }}"
               "{% set _ = a.clear() %}{{ a }}",
               "{}");
    cr_expect_str_eq(r.text, "[0, 1, 2, 3, 4]40[3, 1][]");
    r = render("{% set _ = d.update({'b': 2}, c=3) %}{{ d }}{{ d.pop('a') }}{{ d.setdefault('e', 5) }}{{ d }}{{ "
               "d.pop('z', 0) }}",
               "{\"d\": {\"a\": 1}}");
    cr_expect_str_eq(r.text, "{'a': 1, 'b': 2, 'c': 3}15{'b': 2, 'c': 3, 'e': 5}0");
    r = render("{% set d = dict(a=1) %}{% for i in range(20) %}{% set _ = d.update({i: i}) %}{% endfor %}"
               "{% for i in range(20) %}{% set _ = d.pop(i) %}{% endfor %}{{ d }}{{ 5 in d }}",
               "{}");
    cr_expect_str_eq(r.text, "{'a': 1}False");
    fails_with("{{ [].pop() }}", "line 1: pop index out of range");
    fails_with("{{ d.pop('z') }}", "line 1: pop: the dictionary has no such key");
}

/* Each spread has a count of its own, as it is when its turn comes. */
Test(test_jinja, several_dictionaries_are_spread)
{
    static const char context[] = "{\"a\": {\"x\": 1}, \"b\": {\"p\": 2, \"q\": 3, \"r\": 4, \"s\": 5, \"t\": 6}}";
    Rendered r = render("{{ dict(**a, **b) }}{{ dict(**b, **a) }}", context);
    cr_expect_str_eq(r.text, "{'x': 1, 'p': 2, 'q': 3, 'r': 4, 's': 5, 't': 6}"
                             "{'p': 2, 'q': 3, 'r': 4, 's': 5, 't': 6, 'x': 1}");
    r = render("{{ dict(y=a.update(b), **a) }}", context);
    cr_expect_str_eq(r.text, "{'y': None, 'x': 1, 'p': 2, 'q': 3, 'r': 4, 's': 5, 't': 6}");
    fails_with("{{ dict(**d, **l) }}", "line 1: the argument after ** must be a dictionary");
}

/* Overflow is no way to get there. */
Test(test_jinja, extreme_integers)
{
    Rendered r = render("{{ range(-9223372036854775807 - 1, 9223372036854775807, 9223372036854775807)|list }}"
                        "{{ 'x'.center(-9223372036854775807 - 1) }}",
                        "{}");
    cr_expect_str_eq(r.text, "[-9223372036854775808, -1, 9223372036854775806]x");
}

Test(test_jinja, from_json_reads_text)
{
    Rendered r = render("{% set x = s|from_json %}{{ x.a[1] }}", "{\"s\": \"{\\\"a\\\": [1, \\\"b\\\"]}\"}");
    cr_expect_str_eq(r.text, "b");
    fails_with("{{ '{'|from_json }}", "line 1: from_json was given text that is not JSON");
    fails_with("{{ '{}x'|from_json }}", "line 1: from_json was given text that is not JSON");
}
