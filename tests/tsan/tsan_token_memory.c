/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that keep answers and recall each other's in one memory that forgets all the time: whatever comes out stands
 * for the text that went in. For ThreadSanitizer.
 */
#include "engine/text/token_memory.h"
#include "tests/support/fake_engine.h"
#include "tests/support/tiny_model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_THREADS = 4, N_TURNS = 4000, N_CONTEXTS = 6, MAX_TEXT = 128, MAX_BYTES = 6000 };

typedef struct Talker {
    pthread_t thread;
    const Tokenizer *tokenizer;
    TokenMemory *memory;
    uint32_t random, n_wrong;
} Talker;

static uint32_t next_random(Talker *talker, uint32_t n)
{
    talker->random = talker->random * 1664525u + 1013904223u;
    return (talker->random >> 8) % n;
}

/* Few enough for different threads to say the same. */
static size_t make_answer(Talker *talker, char *text)
{
    static const char *const words[] = {"the", " sun", " water", " and", " \n", " world"};
    size_t n = 0;
    for (uint32_t i = 0, n_words = 1 + next_random(talker, 3); i < n_words; i++) {
        const char *word = words[next_random(talker, 6)];
        memcpy(text + n, word, strlen(word));
        n += strlen(word);
    }
    return n;
}

static bool says(const Talker *talker, const TokenList *list, const char *text, size_t n)
{
    Error error;
    Buffer shown;
    TokStream stream = {0};
    buffer_init(&shown, SIZE_MAX);
    bool ok = true;
    for (size_t i = 0; ok && i < list->n; i++)
        ok = tok_stream_push(&stream, talker->tokenizer, list->ids[i], false, &shown, &error);
    ok = ok && tok_stream_flush(&stream, &shown, &error) && shown.n == n && memcmp(shown.data, text, n) == 0;
    buffer_done(&shown);
    return ok;
}

/* An answer in a context, emitted byte by byte, or a conversation that begins with one. */
static bool take_turn(Talker *talker)
{
    char text[MAX_TEXT];
    uint32_t ids[MAX_TEXT];
    Error error;
    TokenList list = {0};
    size_t n_context = (size_t)sprintf(text, "question %u:", next_random(talker, N_CONTEXTS));
    size_t n = make_answer(talker, text + n_context);
    bool keeps = next_random(talker, 2);
    const TextRange answer = {n_context, n_context + n};
    const TokenRecall recall = {.encode = {.text = text, .n = n_context + n}, .answers = &answer, .n_answers = 1};
    if (keeps) {
        const TokEncode context = {.text = text, .n = n_context};
        if (!tok_encode(talker->tokenizer, &context, &list, &error)) return false;
        for (size_t i = 0; i < n; i++) ids[i] = TINY_FIRST_BYTE + (uint8_t)text[n_context + i];
        uint64_t hash = token_memory_hash(talker->memory, &recall.context, list.ids, list.n);
        token_memory_keep(talker->memory, hash, text + n_context, n, ids, n);
    }
    bool ok = keeps || (token_memory_encode(talker->memory, &recall, &list, &error) &&
                        says(talker, &list, text, n_context + n));
    token_list_done(&list);
    return ok && token_memory_stats(talker->memory).n_bytes <= MAX_BYTES;
}

static void *talk(void *arg)
{
    Talker *talker = arg;
    for (int i = 0; i < N_TURNS; i++) talker->n_wrong += !take_turn(talker);
    return NULL;
}

int main(void)
{
    Talker talkers[N_THREADS];
    Engine *engine = fake_engine_new(&(FakeEngineParams){0});
    const TokenMemoryParams params = {engine_tokenizer(engine), MAX_BYTES, MAX_BYTES};
    TokenMemory *memory;
    Error error;
    int n_passed = 0, n_failed = 0;
    if (!token_memory_new(&params, &memory, &error)) return 1;
    for (uint32_t i = 0; i < N_THREADS; i++) {
        talkers[i] = (Talker){.tokenizer = params.tokenizer, .memory = memory, .random = i * 977 + 1};
        if (pthread_create(&talkers[i].thread, NULL, talk, &talkers[i])) return 1;
    }
    for (uint32_t i = 0; i < N_THREADS; i++) {
        pthread_join(talkers[i].thread, NULL);
        if (talkers[i].n_wrong) printf("FAIL thread %u: %u turns\n", i, talkers[i].n_wrong);
        *(talkers[i].n_wrong ? &n_failed : &n_passed) += 1;
    }
    bool was_used = token_memory_stats(memory).recalled_tokens > 1000;
    if (!was_used) printf("FAIL nothing was recalled\n");
    *(was_used ? &n_passed : &n_failed) += 1;
    token_memory_free(memory);
    engine_close(engine);
    printf("tsan_token_memory: %d passed, %d failed\n", n_passed, n_failed);
    return n_failed != 0;
}
