/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificates: what `eval` found out about one policy on one model file, and `attention = auto` follows. A JSON object
 * in a file beside the model; whoever reads one trusts nothing in it. Any thread.
 *   {"longwave_certificate": 1, "model": "<16 hex digits>", "policy": "...", "roles": "<16>", "kv_type": "f16",
 *    "crossover": 4096, "length": 8192, "questions": 500, "tasks": 3, "mean_loss": 0.004, "worst_loss": 0.01,
 *    "kv_share": 0.22}
 */
#pragma once
#include "base/buffer.h"
#include "engine/eval/policy_spec.h"

enum { CERTIFICATE_MAX_POLICY = 128, CERTIFICATE_MAX_KV_TYPE = 64, CERTIFICATE_MAX_BYTES = 16384 };

typedef struct Certificate {
    uint64_t model;                      /* engine_model_fingerprint */
    char policy[CERTIFICATE_MAX_POLICY]; /* as `eval --policies` takes it */
    uint64_t roles;                      /* HeadRoles.hash of the roles that it names; 0: none */
    char kv_type[CERTIFICATE_MAX_KV_TYPE];
    uint32_t crossover;           /* rows at positions from this one on may follow the policy; before it, dense. At most
                                     length */
    uint32_t length;              /* longest context that was measured: prompts beyond it are dense */
    uint32_t questions;           /* of each task, at least */
    uint32_t tasks;               /* that counted */
    double mean_loss, worst_loss; /* share of right answers that dense gives and the policy does not, mean and worst */
    double kv_share;              /* bytes of keys and values read against dense, selection counted */
} Certificate;

/*
 * What `auto` follows: the certified policy, dense up to the crossover. Head roles are to be found by name among those
 * that the engine was opened with (PolicySpec.roles).
 */
LW_CHECK bool certificate_policy(const Certificate *certificate, PolicySpec *ret_spec, Error *error);

/* What a policy must hold to be certified. */
#define CERTIFICATE_MAX_MEAN_LOSS 0.01
#define CERTIFICATE_MAX_WORST_LOSS 0.02
enum { CERTIFICATE_MIN_TASKS = 3, CERTIFICATE_MIN_QUESTIONS = 100 };

/* MODEL.certificate.json */
LW_CHECK bool certificate_path(const char *model_path, Buffer *out, Error *error);
/* Refuses what breaks the rules above, members that are not known or come twice, and what does not pass. */
LW_CHECK bool certificate_parse(const char *text, size_t n, Certificate *ret_certificate, Error *error);
/*
 * The one beside the model. ERR_NOT_FOUND: there is none. ERR_INVALID: it is broken, or of another model than the one
 * with this fingerprint.
 */
LW_CHECK bool certificate_load(const char *model_path, uint64_t model, Certificate *ret_certificate, Error *error);
/* Its text, as certificate_parse takes it; strings are not escaped. */
LW_CHECK bool certificate_write(const Certificate *certificate, Buffer *out, Error *error);
/* Refuses what certificate_parse would. */
LW_CHECK bool certificate_save(const char *model_path, const Certificate *certificate, Error *error);
