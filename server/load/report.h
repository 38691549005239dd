/* SPDX-License-Identifier: Apache-2.0 */
/* What a load has measured, as text or as one JSON object. One thread. */
#pragma once
#include "server/load/load.h"

typedef struct ReportHead {
    const char *server;   /* host:port, or unix:PATH */
    const char *workload; /* its name */
    const char *replay;   /* path; NULL: none */
} ReportHead;

/* Both sort the report's samples. */
LW_CHECK bool report_write_json(const ReportHead *head, const LoadParams *params, LoadReport *report, Buffer *out,
                                Error *error);
LW_CHECK bool report_write_text(const ReportHead *head, const LoadParams *params, LoadReport *report, Buffer *out,
                                Error *error);
