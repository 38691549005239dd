/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/gguf_guard.h"
#include "engine/model/gguf_watch.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Watched {
    char folder[64], path[96];
    Gguf *gguf;
    GgufWatch *watch;
    const char *news;
    Error error;
} Watched;

static void begin(Watched *w)
{
    TinyModel model = tiny_model_default();
    *w = (Watched){.folder = "/tmp/lw-watch-XXXXXX"};
    gguf_guard_install();
    cr_assert(mkdtemp(w->folder));
    snprintf(w->path, sizeof w->path, "%s/model.gguf", w->folder);
    cr_assert(tiny_model_save(&model, w->path, &w->error));
    cr_assert(gguf_open(w->path, &w->gguf, &w->error));
    cr_assert(gguf_watch_new(w->gguf, &w->watch, &w->error));
}

static void end(Watched *w)
{
    gguf_watch_free(w->watch);
    gguf_close(w->gguf);
    unlink(w->path);
    rmdir(w->folder);
}

static bool look(Watched *w)
{
    return gguf_watch_check(w->watch, &w->news, &w->error);
}

static void touch(const Watched *w, long seconds)
{
    struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    cr_assert_eq(utimensat(AT_FDCWD, w->path, times, 0), 0);
}

Test(gguf_watch, what_is_left_alone_or_touched_is_well)
{
    Watched w;
    begin(&w);
    cr_expect(look(&w) && !w.news);
    touch(&w, 1000);
    cr_expect(look(&w) && !w.news);
    cr_expect(look(&w) && !w.news);
    end(&w);
}

Test(gguf_watch, what_is_cut_is_told)
{
    Watched w;
    begin(&w);
    cr_assert_eq(truncate(w.path, 5000), 0);
    cr_expect_not(look(&w));
    cr_expect(strstr(w.error.text, w.path) && strstr(w.error.text, "to 5000 bytes"), "%s", w.error.text);
    cr_expect_not(look(&w), "it stays so");
    end(&w);
}

Test(gguf_watch, what_is_written_over_is_told)
{
    Watched w;
    begin(&w);
    struct stat status;
    cr_assert_eq(stat(w.path, &status), 0);
    FILE *file = fopen(w.path, "r+b");
    cr_assert(file);
    cr_assert_eq(fseek(file, status.st_size - 40, SEEK_SET), 0);
    cr_assert_eq(fwrite("0123456789", 1, 10, file), 10);
    fclose(file);
    touch(&w, 1000);
    cr_expect_not(look(&w));
    cr_expect(strstr(w.error.text, "written over"), "%s", w.error.text);
    cr_expect_str_eq(w.error.param, "model");
    end(&w);
}

Test(gguf_watch, what_takes_its_place_or_goes_is_news_once)
{
    Watched w;
    char other[96];
    begin(&w);
    snprintf(other, sizeof other, "%s/other", w.folder);
    TinyModel model = tiny_model_default();
    model.seed = 99;
    cr_assert(tiny_model_save(&model, other, &w.error));
    cr_assert_eq(rename(other, w.path), 0);
    cr_expect(look(&w));
    cr_expect(w.news && strstr(w.news, w.path));
    cr_expect(look(&w) && !w.news);
    cr_assert_eq(truncate(w.path, 0), 0); /* of another file now */
    cr_expect(look(&w) && !w.news);
    end(&w);
}

Test(gguf_watch, a_read_of_what_was_cut_is_found_later)
{
    Watched w;
    begin(&w);
    size_t last = gguf_n_tensors(w.gguf) - 1;
    cr_expect(gguf_check_intact(w.gguf, &w.error));
    cr_assert_eq(truncate(w.path, 0), 0);
    const volatile unsigned char *data = gguf_tensor_at(w.gguf, last)->view.data;
    cr_expect_eq(data[0], 0);
    cr_expect_not(gguf_check_intact(w.gguf, &w.error));
    end(&w);
}
