/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation on the way from a file to an engine and from a request body to an answer fails once. Each such run
 * must end in ERR_NO_MEMORY (for a file or a thread in what the system calls it), or do as well without that memory:
 * then it gives what a run without a failure gives. It leaks neither memory nor descriptors, and the run after it
 * succeeds.
 */
#include "tests/robustness/paths.h"
#include "tests/support/alloc_count.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_vocab.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_POINTS = 20000, DIGEST_BYTES = 1 << 20, MAX_SHOWN = 8 };

static World world;
static int n_passed, n_failed;

void digest_add(Buffer *digest, const char *text, size_t n)
{
    Error error;
    if (!buffer_append(digest, text, n, &error)) abort();
}

void digest_count(Buffer *digest, uint64_t value)
{
    char text[24];
    digest_add(digest, text, (size_t)snprintf(text, sizeof text, "%llu ", (unsigned long long)value));
}

static int n_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;
    if (!folder) return 0;
    while (readdir(folder)) n++;
    closedir(folder);
    return n;
}

typedef struct Outcome {
    bool ok;
    const char *failed; /* what was made to fail, NULL: nothing */
    size_t n_left;
    int n_descriptors;
    Error error;
    Buffer digest;
} Outcome;

static void digest_new(Buffer *digest)
{
    Error error;
    buffer_init(digest, DIGEST_BYTES);
    if (!buffer_reserve(digest, DIGEST_BYTES, &error)) abort(); /* so that filling it allocates nothing */
}

static void run_once(const Path *path, uint64_t fail_at, Outcome *outcome)
{
    int before = n_descriptors();
    *outcome = (Outcome){0};
    digest_new(&outcome->digest);
    world.broken = NULL;
    alloc_watch();
    alloc_fail_at(fail_at);
    outcome->ok = path->run(&world, &outcome->digest, &outcome->error);
    outcome->failed = alloc_failed();
    alloc_fail_at(0);
    outcome->n_left = alloc_watch_end();
    outcome->n_descriptors = n_descriptors() - before;
}

/* How it breaks the rules; NULL: not at all. */
static const char *judge(const Outcome *outcome, const Buffer *wanted)
{
    ErrorCode code = outcome->error.code;
    if (outcome->n_left) return "memory is left over";
    if (outcome->n_descriptors) return "descriptors are left open";
    if (world.broken) return world.broken;
    if (outcome->ok) return strcmp(outcome->digest.data, wanted->data) ? "succeeds with something else" : NULL;
    if (!outcome->failed) return "fails without a cause";
    if (!*outcome->error.text) return "an error without a text";
    if (code == ERR_NO_MEMORY || strstr(outcome->error.text, "too much for the memory")) return NULL;
    bool system = !strcmp(outcome->failed, "fopen64") || !strcmp(outcome->failed, "pthread_create") ||
                  !strcmp(outcome->failed, "mmap64");
    return system && code == ERR_IO ? NULL : "an error of another kind";
}

typedef struct Tally {
    uint64_t n_points, n_went_on;
    int n_wrong;
} Tally;

static void report(const Path *path, uint64_t n, const Outcome *outcome, const char *fault, Tally *tally)
{
    if (!fault || tally->n_wrong++ >= MAX_SHOWN) return;
    printf("FAIL %s, allocation %llu (%s): %s: code %d '%s', %zu left\n", path->name, (unsigned long long)n,
           outcome->failed ? outcome->failed : "none", fault, outcome->error.code, outcome->error.text,
           outcome->n_left);
}

static void run_path(const Path *path)
{
    Tally tally = {0};
    Outcome clean, outcome;
    run_once(path, 0, &outcome); /* what is made once and kept */
    buffer_done(&outcome.digest);
    run_once(path, 0, &clean);
    report(path, 0, &clean, clean.ok ? judge(&clean, &clean.digest) : "fails", &tally);
    for (uint64_t n = 1; clean.ok && n <= MAX_POINTS; n++) {
        run_once(path, n, &outcome);
        report(path, n, &outcome, judge(&outcome, &clean.digest), &tally);
        bool injected = outcome.failed != NULL;
        tally.n_points += injected;
        tally.n_went_on += injected && outcome.ok;
        buffer_done(&outcome.digest);
        if (!injected) break;
        run_once(path, 0, &outcome);
        report(path, n, &outcome, outcome.ok ? judge(&outcome, &clean.digest) : "the run after it fails", &tally);
        buffer_done(&outcome.digest);
    }
    if (!tally.n_points || tally.n_points == MAX_POINTS) tally.n_wrong++;
    printf("%-20s %5llu failure points, %llu of them without effect, %d wrong\n", path->name,
           (unsigned long long)tally.n_points, (unsigned long long)tally.n_went_on, tally.n_wrong);
    fflush(stdout);
    buffer_done(&clean.digest);
    *(tally.n_wrong ? &n_failed : &n_passed) += 1;
}

static bool write_file(const char *path, const void *bytes, size_t n, Error *error)
{
    FILE *file = fopen(path, "w");
    bool ok = file && fwrite(bytes, 1, n, file) == n;
    if (file) ok &= !fclose(file);
    return ok || error_set(error, ERR_IO, "cannot write %s", path);
}

/* Writes it and makes it empty. */
static bool write_gguf(GgufWriter *writer, const char *path, Error *error)
{
    Buffer bytes;
    buffer_init(&bytes, 1 << 20);
    gguf_writer_finish(writer, &bytes);
    bool ok = write_file(path, bytes.data, bytes.n, error);
    buffer_done(&bytes);
    gguf_writer_done(writer);
    gguf_writer_init(writer);
    return ok;
}

static bool write_split(GgufWriter *writer, Error *error)
{
    for (uint32_t no = 0; no < 2; no++) {
        snprintf(world.split_paths[no], sizeof world.split_paths[no], "%.120s-%05u-of-00002.gguf", world.model_path,
                 no + 1);
        gguf_writer_u32(writer, "split.no", no);
        gguf_writer_u32(writer, "split.count", 2);
        gguf_writer_u32(writer, "split.tensors.count", 2);
        gguf_writer_tensor(writer, no ? "b" : "a", DTYPE_F32, 1, (uint64_t[]){4}, (float[4]){1}, 16);
        if (!write_gguf(writer, world.split_paths[no], error)) return false;
    }
    return true;
}

static bool world_files(Error *error)
{
    static const char roles[] = "{\"sink\": 64, \"recent\": 64,"
                                " \"streaming\": [{\"layer\": 0, \"heads\": [1]}]}";
    GgufWriter writer;
    snprintf(world.roles_path, sizeof world.roles_path, "%s.roles", world.model_path);
    snprintf(world.spm_path, sizeof world.spm_path, "%s.spm", world.model_path);
    snprintf(world.session_dir, sizeof world.session_dir, "%s.sessions", world.model_path);
    if (mkdir(world.session_dir, 0700)) return error_set(error, ERR_IO, "cannot make %s", world.session_dir);
    gguf_writer_init(&writer);
    tiny_vocab_write_spm(&writer);
    bool ok = write_file(world.roles_path, roles, sizeof roles - 1, error) &&
              write_gguf(&writer, world.spm_path, error) && write_split(&writer, error);
    gguf_writer_done(&writer);
    return ok;
}

static void world_remove(void)
{
    unlink(world.model_path);
    unlink(world.config_path);
    unlink(world.roles_path);
    unlink(world.spm_path);
    for (int i = 0; i < 2; i++) unlink(world.split_paths[i]);
    rmdir(world.session_dir);
}

static bool world_open(Error *error)
{
    TinyModel tiny = tiny_model_default();
    if (!tiny_model_temp(&tiny, world.model_path, sizeof world.model_path, error)) return false;
    snprintf(world.config_path, sizeof world.config_path, "%s.ini", world.model_path);
    FILE *file = fopen(world.config_path, "w");
    if (!file) return error_set(error, ERR_IO, "cannot write %s", world.config_path);
    fputs("[model]\nmodel = a.gguf\nctx = 128K\n[server]\nport = 81\nmax_body = 8MiB\n", file);
    fclose(file);
    if (!world_files(error)) return false;
    const EngineParams params = {.model_path = world.model_path,
                                 .max_sequences = 2,
                                 .max_batch_rows = 64,
                                 .max_logit_rows = 8,
                                 .n_threads = 1,
                                 .kv_types = {{KV_F32, KV_F32, KV_F32}},
                                 .world = 1};
    return engine_open(&params, &world.engine, error);
}

int main(int argc, char **argv)
{
    static const Path *const groups[] = {load_paths, request_paths, answer_paths, server_paths};
    Error error;
    /* Handed over as our own functions, so that cJSON's allocations count too. (libuv aborts when memory is out.) */
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = malloc, .free_fn = free});
    if (!world_open(&error)) {
        printf("FAIL %s\nalloc_failure: 0 passed, 1 failed\n", error.text);
        return 1;
    }
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        for (const Path *path = groups[i]; path->name; path++)
            if (argc < 2 || !strcmp(argv[1], path->name)) run_path(path);
    engine_close(world.engine);
    world_remove();
    printf("alloc_failure: %d passed, %d failed\n", n_passed, n_failed);
    return n_failed != 0 || n_passed == 0;
}
