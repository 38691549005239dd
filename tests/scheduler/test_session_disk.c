/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions and the file system: full disks, links, names. */
#include "tests/scheduler/session_rig.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

Test(session_disk, a_full_disk_leaves_the_old_file)
{
    char folder[64];
    size_t n, n_after;
    struct rlimit before, limit;
    session_folder_new(folder);
    SessionRig rig = session_rig_new(KV_F16, folder);
    session_rig_compute(&rig, 0, rig.text, 200, 200);
    cr_assert_eq(session_rig_save(&rig, 0, "one", 70, NULL), ERR_NONE);
    char *bytes = session_read_file(folder, "one.session", &n);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    for (rlim_t most = 0; most < n; most += n / 7) {
        limit = (struct rlimit){most, before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
        cr_expect_eq(session_rig_save(&rig, 0, "one", 200, NULL), ERR_IO);
        cr_expect_not_null(strstr(session_rig_error.text, "File too large"), "%s", session_rig_error.text);
        cr_expect_eq(session_rig_save(&rig, 0, "two", 200, NULL), ERR_IO);
        setrlimit(RLIMIT_FSIZE, &before);
        char *after = session_read_file(folder, "one.session", &n_after);
        cr_expect(n_after == n && !memcmp(bytes, after, n));
        free(after);
    }
    free(bytes);
    session_rig_free(&rig);
    cr_expect_eq(session_folder_remove(folder), 1, "something was left lying about");
}

/* Bytes that this thread has read and written in files, by the kernel's account. */
static uint64_t moved_bytes(void)
{
    unsigned long long n_read = 0, n_written = 0;
    FILE *file = fopen("/proc/thread-self/io", "r");
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "rchar: %llu wchar: %llu", &n_read, &n_written), 2);
    fclose(file);
    return n_read + n_written;
}

/* The engine thread computes; a slow disk must not hold it up. */
Test(session_disk, who_asks_reads_and_writes_nothing)
{
    char folder[64];
    size_t n_file;
    uint32_t n;
    session_folder_new(folder);
    SessionRig rig = session_rig_new(KV_F16, folder);
    session_rig_compute(&rig, 0, rig.text, 400, 400);
    uint64_t before = moved_bytes();
    cr_assert_eq(session_rig_save(&rig, 0, "one", 400, NULL), ERR_NONE);
    cr_assert_eq(session_rig_restore(&rig, "one", &n), ERR_NONE);
    cr_assert_eq(session_rig_delete(&rig, "none"), ERR_NOT_FOUND);
    uint64_t moved = moved_bytes() - before;
    free(session_read_file(folder, "one.session", &n_file));
    cr_expect(n == 400 && n_file > 10000);
    cr_expect_lt(moved, 1000, "%llu bytes for a file of %zu", (unsigned long long)moved, n_file);
    session_rig_free(&rig);
    cr_expect_eq(session_folder_remove(folder), 1);
}

Test(session_disk, links_and_strange_files_are_not_followed)
{
    char folder[64], path[128];
    session_folder_new(folder);
    SessionRig rig = session_rig_new(KV_F16, folder);
    session_rig_compute(&rig, 0, rig.text, 100, 100);
    cr_assert_eq(session_rig_save(&rig, 0, "one", 100, NULL), ERR_NONE);
    snprintf(path, sizeof path, "%s/link.session", folder);
    cr_assert_eq(symlink("one.session", path), 0);
    cr_expect_eq(session_rig_restore(&rig, "link", NULL), ERR_IO);
    snprintf(path, sizeof path, "%s/pipe.session", folder);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_eq(session_rig_restore(&rig, "pipe", NULL), ERR_INVALID);
    snprintf(path, sizeof path, "%s/folder.session", folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_expect_eq(session_rig_restore(&rig, "folder", NULL), ERR_INVALID);
    cr_expect_eq(session_rig_save(&rig, 0, "folder", 100, NULL), ERR_IO);
    cr_expect_eq(session_rig_delete(&rig, "folder"), ERR_IO);
    /* A name that waits for a write leads elsewhere. */
    snprintf(path, sizeof path, "%s/.new.new", folder);
    cr_assert_eq(symlink("/dev/null", path), 0);
    cr_expect_eq(session_rig_save(&rig, 0, "new", 100, NULL), ERR_IO);
    /* A link in the place of the file is replaced, not what it leads to. */
    cr_expect_eq(session_rig_save(&rig, 0, "link", 50, NULL), ERR_NONE);
    uint32_t n;
    cr_expect_eq(session_rig_restore(&rig, "one", &n), ERR_NONE);
    cr_expect_eq(n, 100);
    cr_expect_eq(session_rig_restore(&rig, "link", &n), ERR_NONE);
    cr_expect_eq(n, 50);
    session_rig_free(&rig);
    session_folder_remove(folder);
}

Test(session_disk, ids_are_letters_digits_and_two_signs)
{
    static const char *const bad[] = {"", ".", "..", "a/b", "../x", "a.b", "a b", "\xC3\xA9", "a\n", "*"};
    char longest[SESSION_MAX_ID_BYTES + 2], folder[64];
    SessionCall *call;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_not(session_call_new(1, SESSION_SAVE, bad[i], &call, &session_rig_error), "'%s'", bad[i]);
        cr_expect(session_rig_error.code == ERR_INVALID && !strcmp(session_rig_error.param, "id"));
    }
    memset(longest, 'x', sizeof longest);
    longest[SESSION_MAX_ID_BYTES + 1] = '\0';
    cr_expect_not(session_call_new(1, SESSION_SAVE, longest, &call, &session_rig_error));
    longest[SESSION_MAX_ID_BYTES] = '\0';
    session_folder_new(folder);
    SessionRig rig = session_rig_new(KV_F16, folder);
    session_rig_compute(&rig, 0, rig.text, 100, 100);
    cr_expect_eq(session_rig_save(&rig, 0, longest, 100, NULL), ERR_NONE, "%s", session_rig_error.text);
    cr_expect_eq(session_rig_save(&rig, 0, "-_aZ09", 100, NULL), ERR_NONE, "%s", session_rig_error.text);
    cr_expect_eq(session_rig_restore(&rig, longest, NULL), ERR_NONE);
    session_rig_free(&rig);
    cr_expect_eq(session_folder_remove(folder), 2);
}

Test(session_disk, a_folder_has_to_be_there)
{
    Engine *engine = ENGINE_RIG(engine_rig_params(kv_types_all(KV_F16), 1, 64), NULL);
    SessionStore *store;
    cr_expect_not(session_store_new(&(SessionParams){engine, NULL, "/nowhere/at/all"}, &store, &session_rig_error));
    cr_expect(session_rig_error.code == ERR_IO && !strcmp(session_rig_error.param, "session_dir"));
    cr_expect_not(session_store_new(&(SessionParams){engine, NULL, "/dev/null"}, &store, &session_rig_error));
    engine_close(engine);
}
