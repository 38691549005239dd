/* SPDX-License-Identifier: Apache-2.0 */
/* What a person or a program reads of eval: tables of text, one JSON object, one self-contained page. One thread. */
#pragma once
#include "engine/eval/summary.h"

typedef struct Report {
    const Results *results;
    const Summary *summary;
    const SummaryRules *rules;
    const char *title; /* of the model */
} Report;

LW_CHECK bool report_text(const Report *report, Buffer *out, Error *error);
/* The summary as an object for cJSON_Delete. */
LW_CHECK bool report_json(const Report *report, cJSON **ret_object, Error *error);
/* HTML with inline SVG, nothing fetched from anywhere. */
LW_CHECK bool report_html(const Report *report, Buffer *out, Error *error);
