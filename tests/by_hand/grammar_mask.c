/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: grammar_mask MODEL|N
 * What masks cost with the vocabulary of a model file, or one of N tokens made from a seed: a text of each grammar is
 * taken token by token, the first time and again; what the grammar holds then, by its own count and by the allocator's.
 * One line for each grammar, and a last one: median microseconds a
 * token (mask and step), first times alone, and the longest compilation in milliseconds.
 */
#include "engine/sample/grammar/gbnf.h"
#include "engine/sample/grammar/matcher.h"
#include "engine/sample/grammar/vocab.h"
#include "engine/sample/schema/schema.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_STEPS = 4096, MAX_PIECE = 16 };

#define STRING                                                                                                         \
    "string ::= \"\\\"\" char* \"\\\"\"\n"                                                                             \
    "char ::= [^\"\\\\\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4})\n"
#define NUMBER "number ::= \"-\"? (\"0\" | [1-9] [0-9]*) (\".\" [0-9]+)? ([eE] [-+]? [0-9]+)?\n"
#define BLANK "ws ::= [ \\t\\n]*\n"

static const struct {
    const char *name, *grammar, *text;
} cases[] = {
    {"json",
     "root ::= ws value\nvalue ::= (object | array | string | number | \"true\" | \"false\" | \"null\") ws\n"
     "object ::= \"{\" ws (pair (\",\" ws pair)*)? \"}\"\npair ::= string ws \":\" ws value\n"
     "array ::= \"[\" ws (value (\",\" ws value)*)? \"]\"\n" STRING NUMBER BLANK,
     "{\"name\": \"Ada Lovelace\", \"born\": 1815, \"languages\": [\"English\", \"French\"], \"notes\": {\"text\": "
     "\"The "
     "engine might act upon other things besides number, were objects found whose relations could be expressed.\", "
     "\"ok\": true}, \"ratio\": -12.5e3, \"empty\": [], \"none\": null}"},
    {"person",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\",\"minimum\":0,"
     "\"maximum\":150},\"email\":{\"type\":\"string\"},\"address\":{\"type\":\"object\",\"properties\":{\"street\":{"
     "\"type\":"
     "\"string\"},\"city\":{\"type\":\"string\"},\"zip\":{\"type\":\"string\",\"pattern\":\"^[0-9]{5}$\"}},"
     "\"required\":[\"street\","
     "\"city\",\"zip\"],\"additionalProperties\":false},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
     "\"role\":{"
     "\"enum\":[\"admin\",\"editor\",\"viewer\",null]}},\"required\":[\"name\",\"age\",\"email\",\"address\",\"tags\","
     "\"role\"],"
     "\"additionalProperties\":false}",
     "{\"name\": \"Grace Brewster Hopper\", \"age\": 85, \"email\": \"grace@navy.example\", \"address\": {\"street\": "
     "\"12 "
     "Harbour Road\", \"city\": \"Arlington\", \"zip\": \"22201\"}, \"tags\": [\"compilers\", \"navy\", \"a longer tag "
     "with "
     "some words in it\"], \"role\": \"editor\"}"},
    {"events",
     "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\"},\"when\":{"
     "\"type\":\"string\","
     "\"format\":\"date\"},\"what\":{\"type\":\"string\"},\"who\":{\"type\":\"string\"},\"where\":{\"type\":\"object\","
     "\"properties\":{"
     "\"lat\":{\"type\":\"number\"},\"lon\":{\"type\":\"number\"}},\"required\":[\"lat\",\"lon\"]}},\"required\":["
     "\"id\",\"when\","
     "\"what\"],\"additionalProperties\":false}}",
     "[{\"id\": 1, \"when\": \"2024-05-17\", \"what\": \"The review of the third draft was moved to Friday\", \"who\": "
     "\"Tim\"}, {\"id\": 20, \"when\": \"2024-06-01\", \"what\": \"Launch\", \"where\": {\"lat\": 52.52, \"lon\": "
     "13.405}}, "
     "{\"id\": 3, \"when\": \"1999-12-31\", \"what\": \"Party of the century, said everybody who had been there\"}]"},
    {"lengths",
     "{\"type\":\"object\",\"properties\":{\"title\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":40},\"body\":{"
     "\"type\":"
     "\"string\",\"maxLength\":400}},\"required\":[\"title\",\"body\"],\"additionalProperties\":false}",
     "{\"title\": \"A short title of some words\", \"body\": \"And a body whose length is limited as well, but to a "
     "number "
     "that is much larger than that of the title, so that most of the text lies in states of its own.\"}"},
    {"tree",
     "{\"$ref\":\"#/$defs/"
     "node\",\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"value\":{\"type\":\"string\"},\"children\":{"
     "\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
     "node\"}}},\"required\":[\"value\",\"children\"],\"additionalProperties\":"
     "false}}}",
     "{\"value\": \"root of the tree\", \"children\": [{\"value\": \"a leaf\", \"children\": []}, {\"value\": \"a "
     "branch\", "
     "\"children\": [{\"value\": \"the last leaf of all\", \"children\": []}]}]}"},
    {"free_then_call",
     "root ::= ([^<] | \"<\" [^t])* (\"<tool>\" \"{\\\"name\\\": \\\"get_weather\\\", \\\"arguments\\\": "
     "{\\\"city\\\": \" "
     "string \"}}\" \"</tool>\")?\n" STRING,
     "I will look up the weather for you now, one moment please.\n<tool>{\"name\": \"get_weather\", \"arguments\": "
     "{\"city\": "
     "\"San Francisco\"}}</tool>"},
};

static void die(const char *what, const Error *error)
{
    fprintf(stderr, "grammar_mask: %s: %s\n", what, error->text);
    exit(1);
}

static uint64_t next_random(uint64_t *random)
{
    uint64_t x = *random += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    return x ^ x >> 31;
}

/* Like those of byte-level vocabularies: all bytes, words with and without a blank, runs of signs, code points. */
static GrammarVocab *make_vocab(uint32_t n)
{
    static const char letters[] = "etaoinshrdlcumwfgypbvkjxqz", signs[] = "\"{}[]:, .-_/\\()<>=\n\t'";
    uint8_t *bytes = malloc((size_t)n * MAX_PIECE);
    size_t *first = calloc((size_t)n + 1, sizeof *first), at = 0;
    uint64_t random = 1;
    GrammarVocab *vocab;
    Error error;
    if (!bytes || !first) exit(1);
    for (uint32_t id = 0; id < n; id++) {
        first[id] = at;
        uint64_t kind = next_random(&random) % 100, length = next_random(&random) % 9 + 2;
        if (id < 256) {
            bytes[at++] = (uint8_t)id;
        } else if (kind < 12) {
            for (uint64_t i = 0; i < length / 2 + 1; i++)
                bytes[at++] = (uint8_t)signs[next_random(&random) % (sizeof signs - 1)];
        } else if (kind < 25) {
            for (uint64_t i = 0; i < length / 3 + 1; i++) {
                uint64_t code = 0x4E00 + next_random(&random) % 0x4000;
                bytes[at++] = (uint8_t)(0xE0 | code >> 12);
                bytes[at++] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
                bytes[at++] = (uint8_t)(0x80 | (code & 0x3F));
            }
        } else {
            if (kind < 65) bytes[at++] = ' ';
            /* The product of two draws prefers what stands in front. */
            for (uint64_t i = 0; i < length; i++)
                bytes[at++] = (uint8_t)letters[next_random(&random) % 26 * (next_random(&random) % 26) / 26];
        }
    }
    first[n] = at;
    if (!grammar_vocab_new(&(GrammarPieces){n, bytes, first}, &vocab, &error)) die("vocabulary", &error);
    free(bytes);
    free(first);
    return vocab;
}

/* The longest allowed token that the text goes on with. */
static uint32_t longest_token(const GrammarVocab *vocab, const uint64_t *words, const char *text, size_t *ret_n)
{
    uint32_t best = 0;
    size_t n_text = strlen(text), n;
    *ret_n = 0;
    for (uint32_t id = 0; id < grammar_vocab_size(vocab); id++) {
        if (!(words[id / 64] >> id % 64 & 1)) continue;
        const uint8_t *piece = grammar_vocab_piece(vocab, id, &n);
        if (n <= *ret_n || n > n_text || memcmp(piece, text, n)) continue;
        best = id;
        *ret_n = n;
    }
    return best;
}

typedef struct Costs {
    double usec[MAX_STEPS];
    uint32_t n;
} Costs;

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double quantile(Costs *costs, double q)
{
    qsort(costs->usec, costs->n, sizeof *costs->usec, compare);
    return costs->n ? costs->usec[(uint32_t)(q * (costs->n - 1))] : 0;
}

/* Of this thread: what others do on the machine does not count. */
static double now_usec(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void take_text(Grammar *grammar, const GrammarVocab *vocab, const char *text, Costs *costs)
{
    GrammarMatcher *matcher;
    const uint64_t *words;
    uint32_t n;
    Error error;
    if (!matcher_new(grammar, &matcher, &error)) die("matcher", &error);
    while (*text && costs->n < MAX_STEPS) {
        double begin = now_usec();
        if (!matcher_mask(matcher, &words, &n, &error)) die("mask", &error);
        double usec = now_usec() - begin;
        size_t n_bytes;
        uint32_t id = longest_token(vocab, words, text, &n_bytes);
        if (!n_bytes) {
            fprintf(stderr, "grammar_mask: no token goes on with '%.20s'\n", text);
            exit(1);
        }
        begin = now_usec();
        if (!matcher_push_token(matcher, id, &error)) die("step", &error);
        costs->usec[costs->n++] = usec + now_usec() - begin;
        text += n_bytes;
    }
    if (!matcher_may_end(matcher)) {
        fprintf(stderr, "grammar_mask: the text is not whole\n");
        exit(1);
    }
    matcher_free(matcher);
}

/* A JSON schema, or GBNF. */
static bool read_case(GrammarBuilder *builder, const char *text, GrammarNode *ret_root, Error *error)
{
    if (*text != '{') return gbnf_parse(builder, text, strlen(text), ret_root, error);
    cJSON *schema = cJSON_Parse(text);
    bool ok = schema ? schema_compile(schema, NULL, builder, ret_root, NULL, error)
                     : error_set(error, ERR_INVALID, "the schema is no JSON");
    cJSON_Delete(schema);
    return ok;
}

/* Appends what the first time took to all; returns the milliseconds of compiling. */
static double run_case(size_t i, const GrammarVocab *vocab, Costs *all)
{
    GrammarBuilder *builder;
    GrammarNode root;
    Grammar *grammar;
    Error error;
    static Costs cold, warm;
    cold.n = warm.n = 0;
    size_t held = mallinfo2().uordblks + mallinfo2().hblkhd;
    double begin = now_usec();
    if (!grammar_builder_new(&builder, &error) || !read_case(builder, cases[i].grammar, &root, &error) ||
        !grammar_compile(builder, root, vocab, &grammar, &error))
        die(cases[i].name, &error);
    double compile_ms = (now_usec() - begin) / 1e3;
    grammar_builder_free(builder);
    take_text(grammar, vocab, cases[i].text, &cold);
    take_text(grammar, vocab, cases[i].text, &warm);
    held = mallinfo2().uordblks + mallinfo2().hblkhd - held;
    for (uint32_t j = 0; j < cold.n && all->n < MAX_STEPS; j++) all->usec[all->n++] = cold.usec[j];
    printf("%-15s %5u states, compiled in %6.2f ms; %3u tokens, first: median %6.2f us, p99 %8.2f, most %8.2f; again: "
           "median %5.2f, most %7.2f; holds %zu KiB, %zu allocated\n",
           cases[i].name, grammar_n_states(grammar), compile_ms, cold.n, quantile(&cold, 0.5), quantile(&cold, 0.99),
           quantile(&cold, 1), quantile(&warm, 0.5), quantile(&warm, 1), grammar_size_bytes(grammar) / 1024,
           held / 1024);
    grammar_release(grammar);
    return compile_ms;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: grammar_mask MODEL|N\n");
        return 2;
    }
    Error error;
    Gguf *gguf = NULL;
    Tokenizer *tokenizer = NULL;
    GrammarVocab *vocab;
    static Costs all;
    double most_ms = 0, begin;
    if (strspn(argv[1], "0123456789") == strlen(argv[1])) {
        begin = now_usec();
        vocab = make_vocab((uint32_t)strtoul(argv[1], NULL, 10));
    } else {
        if (!gguf_open(argv[1], &gguf, &error) || !tok_new(gguf, &tokenizer, &error)) die(argv[1], &error);
        begin = now_usec();
        if (!grammar_vocab_of(tokenizer, &vocab, &error)) die(argv[1], &error);
    }
    printf("%u tokens, their trie made in %.1f ms\n", grammar_vocab_size(vocab), (now_usec() - begin) / 1e3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double ms = run_case(i, vocab, &all);
        if (ms > most_ms) most_ms = ms;
    }
    printf("%.3f %.3f\n", quantile(&all, 0.5), most_ms);
    grammar_vocab_free(vocab);
    tok_free(tokenizer);
    gguf_close(gguf);
    return 0;
}
