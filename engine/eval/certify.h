/* SPDX-License-Identifier: Apache-2.0 */
/* What measurements of one policy are worth: its certificate, or why it gets none. One thread. */
#pragma once
#include "engine/eval/calibration.h"
#include "engine/eval/certificate.h"
#include "engine/eval/summary.h"

typedef struct CertifyParams {
    const Summary *summary;
    const SummaryRules *rules;
    const char *name;             /* in the summary */
    const PolicySpec *spec;       /* with its roles */
    const Crossovers *crossovers; /* NULL: it was not calibrated from where on it pays */
    const char *kv_type;
    uint64_t model; /* engine_model_fingerprint */
} CertifyParams;

/*
 * Passes where it was measured, at each length, by enough questions, and reads less than dense. A length speaks for
 * prompts of more than half of it: the certificate holds from there on, or from where the policy selects, or pays,
 * whatever comes last, up to the longest length without a gap between. ERR_NOT_FOUND says what is not so.
 */
LW_CHECK bool certify(const CertifyParams *params, Certificate *ret_certificate, Error *error);
