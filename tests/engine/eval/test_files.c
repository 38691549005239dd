/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/files.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static Error error;
static char folder[64], path[96], link_path[96];

static void begin(void)
{
    snprintf(folder, sizeof folder, "/tmp/lw-files-%ld", (long)getpid());
    cr_assert_not(mkdir(folder, 0755));
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(link_path, sizeof link_path, "%s/link", folder);
}

static void end(void)
{
    unlink(path);
    unlink(link_path);
    cr_assert_not(rmdir(folder), "nothing else is left behind");
}

TestSuite(test_files, .init = begin, .fini = end);

static void holds(const char *at, const char *text)
{
    Buffer out;
    buffer_init(&out, 1024);
    cr_assert(file_read(at, &out, &error), "%s", error.text);
    cr_expect(out.n == strlen(text) && !memcmp(out.data, text, out.n));
    buffer_done(&out);
}

Test(test_files, files_are_replaced_and_links_followed)
{
    cr_assert(file_check_replace(path, &error) && file_replace(path, "one", 3, &error), "%s", error.text);
    cr_assert(file_check_replace(path, &error) && file_replace(path, "two!", 4, &error), "%s", error.text);
    holds(path, "two!");
    cr_assert_not(symlink("file", link_path));
    cr_assert(file_check_replace(link_path, &error) && file_replace(link_path, "three", 5, &error), "%s", error.text);
    holds(path, "three");
    struct stat st;
    cr_expect(!lstat(link_path, &st) && S_ISLNK(st.st_mode), "the link stays one");
}

/* As root, a report to /dev/null would leave a machine without it. */
Test(test_files, what_is_no_file_stays_what_it_is)
{
    struct stat st;
    cr_assert_not(mkfifo(path, 0644));
    cr_expect_not(file_replace(path, "x", 1, &error));
    cr_expect(strstr(error.text, path) && strstr(error.text, "no ordinary file"), "%s", error.text);
    cr_expect_not(file_check_replace(path, &error));
    cr_expect(!lstat(path, &st) && S_ISFIFO(st.st_mode));
    cr_expect_not(file_replace(folder, "x", 1, &error));
    cr_expect_not(file_check_replace("/dev/null", &error));
    cr_assert_not(symlink("nowhere", link_path));
    cr_expect_not(file_replace(link_path, "x", 1, &error));
    char inside[128];
    snprintf(inside, sizeof inside, "%s/not/there", folder);
    cr_expect_not(file_check_replace(inside, &error));
    cr_expect(strstr(error.text, "No such file"), "%s", error.text);
    cr_expect_not(file_replace(inside, "x", 1, &error));
    cr_expect(strstr(error.text, "No such file"), "%s", error.text);
    cr_expect_not(file_check_folder(path, &error));
}

static bool is_free_elsewhere(void)
{
    pid_t child = fork();
    if (child == 0) {
        FileLock lock;
        _exit(file_lock(path, &lock, &error) ? 0 : error.code == ERR_BUSY ? 1 : 2);
    }
    int status;
    cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 0;
}

Test(test_files, one_process_at_a_time_has_the_lock)
{
    FileLock lock, second;
    cr_assert(file_lock(path, &lock, &error), "%s", error.text);
    cr_expect_not(is_free_elsewhere());
    cr_expect_not(file_lock(path, &second, &error));
    cr_expect(error.code == ERR_BUSY && strstr(error.text, "another process"), "%s", error.text);
    file_unlock(&lock);
    cr_expect(is_free_elsewhere(), "it also goes with a process that just ends");
    cr_assert(file_lock(path, &lock, &error), "%s", error.text);
    file_unlock(&lock);
    file_unlock(&lock);
    FileLock none = FILE_UNLOCKED;
    file_unlock(&none);
    char inside[128];
    snprintf(inside, sizeof inside, "%s/not/there", folder);
    cr_expect_not(file_lock(inside, &lock, &error));
    cr_expect_eq(error.code, ERR_IO);
}
