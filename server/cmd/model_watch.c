/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cmd/model_watch.h"

#include "base/log.h"

enum { LOOK_MS = 1000 };

static void on_look(uv_work_t *work)
{
    ModelWatch *self = work->data;
    self->error.code = ERR_NONE;
    self->news = NULL;
    if (!gguf_watch_check(self->watch, &self->news, &self->error) && self->error.code == ERR_NONE)
        (void)error_set(&self->error, ERR_INTERNAL, "the model file is damaged");
}

static void on_looked(uv_work_t *work, int status)
{
    ModelWatch *self = work->data;
    self->is_looking = false;
    if (status || self->is_stopped) return;
    if (self->news) log_warn("%s", self->news);
    if (self->error.code == ERR_NONE) return;
    uv_timer_stop(&self->timer);
    self->on_damage(self->arg, &self->error);
}

static void on_tick(uv_timer_t *timer)
{
    ModelWatch *self = timer->data;
    if (self->is_looking) return; /* a file system that does not answer */
    self->is_looking = !uv_queue_work(timer->loop, &self->work, on_look, on_looked);
}

void model_watch_begin(ModelWatch *self, uv_loop_t *loop, GgufWatch *watch)
{
    self->watch = watch;
    self->work.data = self;
    self->timer.data = self;
    uv_timer_init(loop, &self->timer);
    uv_timer_start(&self->timer, on_tick, LOOK_MS, LOOK_MS);
}

void model_watch_stop(ModelWatch *self)
{
    if (!self->watch) return;
    self->is_stopped = true;
    uv_close((uv_handle_t *)&self->timer, NULL);
}

void model_watch_done(ModelWatch *self)
{
    gguf_watch_free(self->watch);
    self->watch = NULL;
}
