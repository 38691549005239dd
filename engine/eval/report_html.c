/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CELL = 46, LABEL = 90, PLOT_WIDTH = 640, PLOT_HEIGHT = 240, MARGIN = 56, N_COLOURS = 8, MAX_TICKS = 5 };

static const char *const colours[N_COLOURS] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                               "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"};

/* The page on its way: the first failure sticks. */
typedef struct Page {
    const Report *report;
    Buffer *out;
    Error *error;
    bool failed;
} Page;

static void put(Page *page, const char *fmt, ...) LW_PRINTF(2, 3);
static void put(Page *page, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (page->failed) return;
    if (n < 0 || (size_t)n >= sizeof text)
        page->failed = !error_set(page->error, ERR_INTERNAL, "a line of the page is too long");
    else
        page->failed = !buffer_append(page->out, text, (size_t)n, page->error);
}

/* Text from results: names that may have come from a file. */
static void put_text(Page *page, const char *text)
{
    for (; *text; text++) {
        const char *entity = *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : *text == '&' ? "&amp;" : NULL;
        if (*text == '"') entity = "&quot;";
        if (entity)
            put(page, "%s", entity);
        else
            put(page, "%c", *text);
    }
}

static double share(const KvCounts *counts)
{
    return counts->dense_bytes ? (double)(counts->kv_bytes + counts->select_bytes) / (double)counts->dense_bytes : 0;
}

static void put_cell(Page *page, const char *text)
{
    put(page, "<td>");
    put_text(page, text);
    put(page, "</td>");
}

static void put_tasks(Page *page)
{
    const Summary *s = page->report->summary;
    put(page, "<h2>Right answers</h2><table><tr><th>length<th>task<th>policy<th>right<th>95 %%<th>against dense<th>95 "
              "%%<th>log-probability<th>bytes read<th>seconds</tr>\n");
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        const TaskSummary *t = &s->tasks[i];
        put(page, "<tr><td>%u</td>", t->length);
        put_cell(page, t->task);
        put_cell(page, t->policy);
        put(page, "<td>%.1f %%</td><td>%.1f to %.1f</td>", 100 * t->share.value, 100 * t->share.low,
            100 * t->share.high);
        if (t->has_dense)
            put(page, "<td>%+.1f</td><td>%+.1f to %+.1f</td><td>%+.4f</td>", 100 * t->change.value, 100 * t->change.low,
                100 * t->change.high, t->log_prob_change.value);
        else
            put(page, "<td></td><td></td><td></td>");
        put(page, "<td>%.1f %%</td><td>%.1f</td></tr>\n", 100 * share(&t->counts), t->seconds);
    }
    put(page, "</table>\n");
}

static void put_policies(Page *page)
{
    const Summary *s = page->report->summary;
    put(page,
        "<h2>Policies</h2><p>Over the tasks that dense gets right in at least %.0f %%.</p><table><tr><th>length<th>"
        "policy<th>tasks<th>mean<th>95 %%<th>worst<th>bytes read<th>passes</tr>\n",
        100 * page->report->rules->least_dense);
    for (uint32_t i = 0; i < s->n_policies; i++) {
        const PolicySummary *p = &s->policies[i];
        put(page, "<tr><td>%u</td>", p->length);
        put_cell(page, p->policy);
        put(page,
            "<td>%u of %u</td><td>%+.2f</td><td>%+.2f to %+.2f</td><td>%+.2f</td><td>%.1f %%</td><td>%s</td></tr>\n",
            p->n_counted, p->n_tasks, 100 * p->mean_change, 100 * p->change.low, 100 * p->change.high,
            100 * p->worst_change, 100 * share(&p->counts), summary_passes(p, page->report->rules) ? "yes" : "no");
    }
    put(page, "</table>\n");
}

/* Red over yellow to green. */
static void put_heat_cell(Page *page, uint32_t x, uint32_t y, uint32_t right, uint32_t n)
{
    if (!n) return;
    double rate = (double)right / n;
    put(page,
        "<rect x=\"%u\" y=\"%u\" width=\"%d\" height=\"%d\" fill=\"hsl(%.0f 65%% 62%%)\"><title>%u of %u</title></rect>"
        "<text x=\"%u\" y=\"%u\" class=\"v\">%.0f</text>\n",
        x, y, CELL - 2, CELL / 2 - 2, 120 * rate, right, n, x + CELL / 2 - 1, y + CELL / 4 + 3, 100 * rate);
}

/* Of one task under one policy: depth down, length across. */
static void put_heat_map(Page *page, const TaskSummary *of)
{
    const Summary *s = page->report->summary;
    uint32_t column = 0, n_columns = 0;
    for (uint32_t i = 0; i < s->n_tasks; i++)
        n_columns += !strcmp(s->tasks[i].policy, of->policy) && !strcmp(s->tasks[i].task, of->task);
    put(page, "<figure><figcaption>");
    put_text(page, of->task);
    put(page, "<br>");
    put_text(page, of->policy);
    put(page, "</figcaption><svg width=\"%u\" height=\"%u\">\n", LABEL + n_columns * CELL,
        20 + of->n_depths * CELL / 2);
    for (uint32_t d = 0; d < of->n_depths; d++)
        put(page, "<text x=\"0\" y=\"%u\">%.0f to %.0f %%</text>\n", 20 + d * CELL / 2 + CELL / 4 + 3,
            100.0 * d / of->n_depths, 100.0 * (d + 1) / of->n_depths);
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        const TaskSummary *t = &s->tasks[i];
        if (strcmp(t->policy, of->policy) || strcmp(t->task, of->task)) continue;
        uint32_t x = LABEL + column++ * CELL;
        put(page, "<text x=\"%u\" y=\"12\" class=\"v\">%u</text>\n", x + CELL / 2 - 1, t->length);
        for (uint32_t d = 0; d < t->n_depths; d++)
            put_heat_cell(page, x, 20 + d * CELL / 2, t->depth_right[d], t->depth_n[d]);
    }
    put(page, "</svg></figure>\n");
}

static bool is_first(const Summary *s, uint32_t i)
{
    for (uint32_t j = 0; j < i; j++)
        if (!strcmp(s->tasks[j].policy, s->tasks[i].policy) && !strcmp(s->tasks[j].task, s->tasks[i].task))
            return false;
    return true;
}

static void put_heat_maps(Page *page)
{
    const Summary *s = page->report->summary;
    put(page,
        "<h2>Depth and length</h2><p>Share of right answers by where in the prompt the needle begins (0 %%: at its "
        "start) and the prompt's length.</p>\n<div class=\"maps\">\n");
    for (uint32_t i = 0; i < s->n_tasks; i++)
        if (is_first(s, i)) put_heat_map(page, &s->tasks[i]);
    put(page, "</div>\n");
}

/* A curve of each policy over positions. */
typedef struct Plot {
    const char *kind, *title;
    double (*value)(const RowsSummary *rows);
    bool is_log;
    double low, high; /* of the values, as they are drawn */
    uint32_t end;     /* last position */
} Plot;

static double value_kl(const RowsSummary *rows)
{
    return rows->kl.value;
}

static double value_top(const RowsSummary *rows)
{
    return 100 * rows->top.value;
}

static double drawn(const Plot *plot, const RowsSummary *rows)
{
    double value = plot->value(rows);
    return plot->is_log ? log10(fmax(value, 1e-9)) : value;
}

static bool is_on(const Plot *plot, const RowsSummary *rows)
{
    return rows->position != SUMMARY_ALL && !strcmp(rows->kind, plot->kind);
}

static bool find_ranges(const Summary *s, Plot *plot)
{
    plot->low = INFINITY;
    plot->high = -INFINITY;
    plot->end = 1;
    for (uint32_t i = 0; i < s->n_rows; i++) {
        if (!is_on(plot, &s->rows[i])) continue;
        plot->low = fmin(plot->low, drawn(plot, &s->rows[i]));
        plot->high = fmax(plot->high, drawn(plot, &s->rows[i]));
        if (s->rows[i].position > plot->end) plot->end = s->rows[i].position;
    }
    if (plot->high - plot->low < 1e-6) plot->low = plot->high - 1;
    return isfinite(plot->low);
}

static double y_of(const Plot *plot, double value)
{
    return 10 + (PLOT_HEIGHT - 40) * (plot->high - value) / (plot->high - plot->low);
}

static double x_of(const Plot *plot, uint32_t position)
{
    return MARGIN + (double)(PLOT_WIDTH - MARGIN - 10) * position / plot->end;
}

static void put_axes(Page *page, const Plot *plot)
{
    for (int i = 0; i <= MAX_TICKS; i++) {
        double value = plot->low + (plot->high - plot->low) * i / MAX_TICKS, y = y_of(plot, value);
        uint32_t position = (uint32_t)((uint64_t)plot->end * (uint32_t)i / MAX_TICKS);
        put(page,
            "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" class=\"g\"/><text x=\"0\" y=\"%.1f\">%.3g</text><text "
            "x=\"%.1f\" y=\"%d\" class=\"v\">%u</text>\n",
            MARGIN, y, PLOT_WIDTH - 10, y, y + 3, plot->is_log ? pow(10, value) : value, x_of(plot, position),
            PLOT_HEIGHT - 8, position);
    }
}

static void put_curve(Page *page, const Plot *plot, const char *policy, const char *colour)
{
    const Summary *s = page->report->summary;
    put(page, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
    for (uint32_t i = 0; i < s->n_rows; i++)
        if (is_on(plot, &s->rows[i]) && !strcmp(s->rows[i].policy, policy))
            put(page, "%.1f,%.1f ", x_of(plot, s->rows[i].position), y_of(plot, drawn(plot, &s->rows[i])));
    put(page, "\"/>\n");
}

static bool is_first_curve(const Summary *s, const Plot *plot, uint32_t i)
{
    if (!is_on(plot, &s->rows[i])) return false;
    for (uint32_t j = 0; j < i; j++)
        if (is_on(plot, &s->rows[j]) && !strcmp(s->rows[j].policy, s->rows[i].policy)) return false;
    return true;
}

static void put_plot(Page *page, Plot plot)
{
    const Summary *s = page->report->summary;
    uint32_t n = 0;
    if (!find_ranges(s, &plot)) return;
    put(page, "<h3>%s, rows of kind %s</h3><svg width=\"%d\" height=\"%d\">\n", plot.title, plot.kind, PLOT_WIDTH,
        PLOT_HEIGHT);
    put_axes(page, &plot);
    for (uint32_t i = 0; i < s->n_rows; i++)
        if (is_first_curve(s, &plot, i)) put_curve(page, &plot, s->rows[i].policy, colours[n++ % N_COLOURS]);
    put(page, "</svg><p>");
    n = 0;
    for (uint32_t i = 0; i < s->n_rows; i++) {
        if (!is_first_curve(s, &plot, i)) continue;
        put(page, "<span style=\"color:%s\">&#9632; ", colours[n++ % N_COLOURS]);
        put_text(page, s->rows[i].policy);
        put(page, "</span> ");
    }
    put(page, "</p>\n");
}

static void put_rows(Page *page)
{
    const Summary *s = page->report->summary;
    if (!s->n_rows) return;
    put(page, "<h2>Distance from dense</h2><p>Rows of one text behind so many tokens of it, each compared with the "
              "model's own dense run.</p><table><tr><th>policy<th>rows<th>KL, nats<th>95 %%<th>top-1<th>perplexity<th>"
              "dense<th>bytes read</tr>\n");
    for (uint32_t i = 0; i < s->n_rows; i++) {
        const RowsSummary *r = &s->rows[i];
        if (r->position != SUMMARY_ALL) continue;
        put(page, "<tr>");
        put_cell(page, r->policy);
        put_cell(page, r->kind);
        put(page, "<td>%.5f</td><td>%.5f to %.5f</td><td>%.1f %%</td><td>%.3f</td><td>%.3f</td><td>%.1f %%</td></tr>\n",
            r->kl.value, r->kl.low, r->kl.high, 100 * r->top.value, r->perplexity, r->dense_perplexity,
            100 * share(&r->counts));
    }
    put(page, "</table>\n");
    static const char *const kinds[] = {"decode", "prefill"};
    for (int k = 0; k < 2; k++) {
        put_plot(page, (Plot){.kind = kinds[k], .title = "KL by position", .value = value_kl, .is_log = true});
        put_plot(page, (Plot){.kind = kinds[k], .title = "Same likeliest token by position, %", .value = value_top});
    }
}

static void put_recall(Page *page)
{
    const Summary *s = page->report->summary;
    if (!s->n_recalls) return;
    put(page, "<h2>What lists hold</h2><table><tr><th>position<th>policy<th>recall of the true top k<th>attention mass "
              "seen<th>with the true top k<th>of sink and recent range</tr>\n");
    for (uint32_t i = 0; i < s->n_recalls; i++) {
        const RecallSummary *r = &s->recalls[i];
        put(page, "<tr><td>%u</td>", r->position);
        put_cell(page, r->policy);
        put(page, "<td>%.1f %%</td><td>%.2f %%</td><td>%.2f %%</td><td>%.2f %%</td></tr>\n", 100 * r->recall,
            100 * r->mass, 100 * r->best_mass, 100 * r->range_mass);
    }
    put(page, "</table>\n");
}

static void put_estimates(Page *page)
{
    const Summary *s = page->report->summary;
    if (!s->n_estimates) return;
    put(page, "<h2>Estimates of what is left out</h2><table><tr><th>policy<th>rows<th>within a factor of 2<th>95 %%<th>"
              "mean<th>truth</tr>\n");
    for (uint32_t i = 0; i < s->n_estimates; i++) {
        const EstimateSummary *e = &s->estimates[i];
        put(page, "<tr>");
        put_cell(page, e->policy);
        put(page, "<td>%u</td><td>%.1f %%</td><td>%.1f to %.1f</td><td>%.2f %%</td><td>%.2f %%</td></tr>\n", e->n,
            100 * e->within.value, 100 * e->within.low, 100 * e->within.high, 100 * e->estimated, 100 * e->missing);
    }
    put(page, "</table>\n");
}

bool report_html(const Report *report, Buffer *out, Error *error)
{
    Page page = {.report = report, .out = out, .error = error};
    put(&page, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>longwave eval</title><style>\n"
               "body{font:14px sans-serif;margin:2em;color:#222}table{border-collapse:collapse}td,th{border:1px solid "
               "#ccc;padding:2px 8px;text-align:right}svg text{font-size:11px}.v{text-anchor:middle}.g{stroke:#ddd}"
               ".maps{display:flex;flex-wrap:wrap}figure{margin:8px}figcaption{font-size:12px}\n"
               "</style></head><body>\n<h1>Fidelity of ");
    put_text(&page, report->title);
    put(&page, "</h1>\n");
    if (report->summary->n_tasks) {
        put_policies(&page);
        put_tasks(&page);
        put_heat_maps(&page);
    }
    put_rows(&page);
    put_recall(&page);
    put_estimates(&page);
    put(&page, "</body></html>\n");
    return !page.failed;
}
