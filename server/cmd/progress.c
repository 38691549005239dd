/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cmd/progress.h"
#include "base/clock.h"

#include <stdio.h>
#include <unistd.h>

enum { BAR_COLUMNS = 30, REDRAW_USEC = 50000 };

static void draw(const Progress *progress, double fraction)
{
    char bar[BAR_COLUMNS + 1];
    for (int i = 0; i < BAR_COLUMNS; i++) bar[i] = i < fraction * BAR_COLUMNS ? '#' : '.';
    bar[BAR_COLUMNS] = '\0';
    fprintf(stderr, "\r%-8s [%s] %3.0f %%", progress->label, bar, fraction * 100);
    fflush(stderr);
}

void progress_begin(Progress *progress, const char *label)
{
    *progress = (Progress){.label = label, .shown = isatty(STDERR_FILENO), .last_usec = clock_now_usec()};
}

void progress_update(void *arg, double fraction)
{
    Progress *progress = arg;
    uint64_t now_usec = clock_now_usec();
    if (!progress->shown || now_usec - progress->last_usec < REDRAW_USEC) return;
    progress->last_usec = now_usec;
    draw(progress, fraction);
}

void progress_end(Progress *progress)
{
    if (progress->shown) fputs("\r\033[K", stderr);
}
