/* SPDX-License-Identifier: Apache-2.0 */
/* Looks every second, in uv's pool, whether the model's files are still what was opened. Loop thread. */
#pragma once
#include "base/error.h"
#include "engine/model/gguf_watch.h"
#include <uv.h>

typedef struct ModelWatch {
    GgufWatch *watch; /* NULL: not begun */
    uv_timer_t timer;
    uv_work_t work;
    bool is_looking, is_stopped;
    const char *news;
    Error error;
    void (*on_damage)(void *arg, const Error *why); /* once; nothing is looked at after it */
    void *arg;
} ModelWatch;

/* The watch becomes its own. */
void model_watch_begin(ModelWatch *self, uv_loop_t *loop, GgufWatch *watch);
/* Its handle needs one more turn of the loop; then model_watch_done. Not begun is fine. */
void model_watch_stop(ModelWatch *self);
void model_watch_done(ModelWatch *self);
