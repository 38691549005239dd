/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/scheduler/session_rig.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

Error session_rig_error;

static uint64_t no_time(void)
{
    return 0;
}

void session_folder_new(char *folder)
{
    strcpy(folder, "/tmp/longwave_session_XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

uint32_t session_folder_remove(const char *folder)
{
    uint32_t n = 0;
    DIR *dir = opendir(folder);
    cr_assert_not_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        n++;
        if (unlinkat(dirfd(dir), entry->d_name, 0) != 0) unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
    }
    closedir(dir);
    rmdir(folder);
    return n;
}

SessionRig session_rig_limited(Engine *engine, const char *folder, uint64_t max_idle_bytes)
{
    SessionRig rig = {.engine = engine};
    const PrefixParams params = {
        .engine = engine, .max_nodes = 200, .max_idle_bytes = max_idle_bytes, .clock_usec = no_time};
    cr_assert(prefix_cache_new(&params, &rig.cache, &session_rig_error), "%s", session_rig_error.text);
    cr_assert(session_store_new(&(SessionParams){engine, rig.cache, folder}, &rig.store, &session_rig_error), "%s",
              session_rig_error.text);
    engine_rig_text(engine, 1, rig.text, SESSION_RIG_TEXT);
    return rig;
}

SessionRig session_rig_on(Engine *engine, const char *folder)
{
    return session_rig_limited(engine, folder, 0);
}

SessionRig session_rig_new(KvType type, const char *folder)
{
    return session_rig_on(ENGINE_RIG(engine_rig_params(kv_types_all(type), 4, 64), "layers=1", "heads=1", "kv_heads=1"),
                          folder);
}

void session_rig_free(SessionRig *rig)
{
    session_store_free(rig->store);
    prefix_cache_free(rig->cache);
    cr_expect_eq(engine_kv_usage(rig->engine).used_bytes, 0, "a page was leaked");
    engine_close(rig->engine);
}

void session_rig_compute(SessionRig *rig, PolicyId policy, const uint32_t *text, uint32_t n_prompt, uint32_t n)
{
    PrefixCursor cursor;
    const PageSet *sets;
    uint32_t n_cached;
    PrefixEnd end;
    prefix_cache_open(rig->cache, &(PrefixKey){.policy = policy}, text, 0, &cursor, &sets, &n_cached, &end);
    SeqId seq = engine_rig_seq(rig->engine, policy);
    for (uint32_t at = 0, some; at < n; at += some) {
        uint32_t until = at < n_prompt ? n_prompt : n;
        some = until - at < 30 ? until - at : 30;
        engine_rig_feed(rig->engine, seq, at < n_prompt ? ROWS_PREFILL : ROWS_DECODE, text + at, some, 0, NULL);
        const PrefixRun run = {.seq = seq, .tokens = text, .n_tokens = at + some, .n_prefilled = n_prompt};
        prefix_cache_extend(rig->cache, &cursor, &run);
    }
    const PrefixRun run = {.seq = seq, .tokens = text, .n_tokens = n, .n_prefilled = n_prompt};
    prefix_cache_finish(rig->cache, &cursor, &run);
    engine_seq_close(rig->engine, seq);
}

SessionCall *session_rig_call(SessionOp op, const char *session)
{
    SessionCall *call;
    cr_assert(session_call_new(7, op, session, &call, &session_rig_error), "%s", session_rig_error.text);
    return call;
}

SessionState session_rig_step(SessionRig *rig)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    return session_step(rig->store);
}

void session_rig_run(SessionRig *rig, SessionCall *call)
{
    SessionState state;
    session_begin(rig->store, call);
    while ((state = session_rig_step(rig)) != SESSION_OVER) cr_assert_neq(state, SESSION_IDLE);
    cr_assert_eq(session_step(rig->store), SESSION_IDLE);
}

uint32_t session_rig_look(SessionRig *rig, const uint32_t *text, uint32_t n)
{
    PrefixCursor cursor;
    const PageSet *sets;
    uint32_t n_cached;
    PrefixEnd end;
    prefix_cache_open(rig->cache, &(PrefixKey){0}, text, n, &cursor, &sets, &n_cached, &end);
    prefix_cache_close(rig->cache, &cursor);
    return n_cached;
}

ErrorCode session_rig_save(SessionRig *rig, PolicyId policy, const char *session, uint32_t n, uint32_t *ret_n)
{
    SessionCall *call = session_rig_call(SESSION_SAVE, session);
    call->policy = policy;
    cr_assert(session_call_set_tokens(call, rig->text, n, NULL, 0, &session_rig_error));
    session_rig_run(rig, call);
    session_rig_error = call->error;
    if (ret_n) *ret_n = call->n_moved_tokens;
    session_call_free(call);
    return session_rig_error.code;
}

ErrorCode session_rig_restore(SessionRig *rig, const char *session, uint32_t *ret_n)
{
    SessionCall *call = session_rig_call(SESSION_RESTORE, session);
    session_rig_run(rig, call);
    session_rig_error = call->error;
    if (ret_n) *ret_n = call->n_moved_tokens;
    session_call_free(call);
    return session_rig_error.code;
}

ErrorCode session_rig_delete(SessionRig *rig, const char *session)
{
    SessionCall *call = session_rig_call(SESSION_DELETE, session);
    session_rig_run(rig, call);
    ErrorCode code = call->error.code;
    session_call_free(call);
    return code;
}

char *session_read_file(const char *folder, const char *name, size_t *ret_n)
{
    char path[128];
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDONLY);
    cr_assert(fd >= 0 && fstat(fd, &status) == 0);
    char *bytes = malloc((size_t)status.st_size + 1);
    cr_assert(bytes && read(fd, bytes, (size_t)status.st_size) == status.st_size);
    close(fd);
    *ret_n = (size_t)status.st_size;
    return bytes;
}
