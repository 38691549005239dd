/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates: any bytes give one that holds what a policy must hold, and that survives writing, or an error. */
#include "engine/eval/certificate.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Certificate certificate;
    Error error = {0};
    if (!certificate_parse((const char *)data, n, &certificate, &error)) {
        if (error.code == ERR_NONE) abort();
        return 0;
    }
    if (!memchr(certificate.policy, '\0', sizeof certificate.policy) ||
        !memchr(certificate.kv_type, '\0', sizeof certificate.kv_type) || !certificate.policy[0])
        abort();
    if (!(certificate.mean_loss <= CERTIFICATE_MAX_MEAN_LOSS && certificate.worst_loss <= CERTIFICATE_MAX_WORST_LOSS) ||
        certificate.questions < CERTIFICATE_MIN_QUESTIONS || certificate.tasks < CERTIFICATE_MIN_TASKS)
        abort();
    return 0;
}
