/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/gguf_ahead.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 24 << 20, WAIT_MSEC = 10000 };

typedef struct Opened {
    char folder[64], path[96];
    Gguf *gguf;
    Error error;
} Opened;

static void begin(Opened *o)
{
    TinyModel model = tiny_model_default();
    *o = (Opened){.folder = "/tmp/lw-ahead-XXXXXX"};
    cr_assert(mkdtemp(o->folder));
    snprintf(o->path, sizeof o->path, "%s/model.gguf", o->folder);
    cr_assert(tiny_model_save(&model, o->path, &o->error));
    cr_assert_eq(truncate(o->path, FILE_BYTES), 0);
    cr_assert(gguf_open(o->path, &o->gguf, &o->error), "%s", o->error.text);
}

static void end(Opened *o)
{
    gguf_close(o->gguf);
    unlink(o->path);
    rmdir(o->folder);
}

/* Of the file's mapping, what is in this process's page tables. */
static long mapped_bytes(const Opened *o)
{
    char line[512];
    bool is_it = false;
    long kb = -1;
    FILE *maps = fopen("/proc/self/smaps", "r");
    cr_assert(maps);
    while (kb < 0 && fgets(line, sizeof line, maps)) {
        is_it |= strstr(line, o->path) != NULL;
        if (is_it) sscanf(line, "Rss: %ld", &kb);
    }
    fclose(maps);
    return kb * 1024;
}

Test(gguf_ahead, the_whole_file_is_read_without_anybody_touching_it)
{
    Opened o;
    begin(&o);
    cr_assert_lt(mapped_bytes(&o), FILE_BYTES / 2);
    GgufAhead *ahead = gguf_ahead_new(o.gguf);
    cr_assert(ahead);
    for (int i = 0; i < WAIT_MSEC && mapped_bytes(&o) < FILE_BYTES; i++) usleep(1000);
    cr_expect_eq(mapped_bytes(&o), FILE_BYTES);
    gguf_ahead_free(ahead);
    end(&o);
}

Test(gguf_ahead, it_can_be_ended_at_once_and_where_the_file_was_cut)
{
    Opened o;
    begin(&o);
    for (int i = 0; i < 50; i++) {
        if (i == 25) cr_assert_eq(truncate(o.path, FILE_BYTES / 2), 0);
        GgufAhead *ahead = gguf_ahead_new(o.gguf);
        cr_expect(ahead);
        gguf_ahead_free(ahead);
    }
    end(&o);
}

Test(gguf_ahead, a_model_in_memory_needs_none)
{
    Opened o;
    begin(&o);
    char *bytes = malloc(FILE_BYTES);
    FILE *file = fopen(o.path, "rb");
    cr_assert(bytes && file && fread(bytes, FILE_BYTES, 1, file) == 1);
    fclose(file);
    Gguf *gguf;
    cr_assert(gguf_open_memory(bytes, FILE_BYTES, "memory", &gguf, &o.error));
    cr_expect_null(gguf_ahead_new(gguf));
    gguf_ahead_free(NULL);
    gguf_close(gguf);
    free(bytes);
    end(&o);
}
