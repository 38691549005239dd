/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates: any bytes give one that holds what a policy must hold, and that survives writing, or an error. */
#include "engine/eval/certificate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool ok)
{
    if (!ok) abort();
}

static void write_and_read(const Certificate *certificate)
{
    Buffer text, again;
    Certificate read;
    Error error;
    buffer_init(&text, CERTIFICATE_MAX_BYTES);
    buffer_init(&again, CERTIFICATE_MAX_BYTES);
    must(certificate_write(certificate, &text, &error) && certificate_parse(text.data, text.n, &read, &error));
    must(read.model == certificate->model && !strcmp(read.policy, certificate->policy) &&
         !strcmp(read.kv_type, certificate->kv_type));
    must(read.crossover == certificate->crossover && read.length == certificate->length &&
         read.questions == certificate->questions && read.tasks == certificate->tasks);
    must(fabs(read.mean_loss - certificate->mean_loss) < 1e-6 && fabs(read.kv_share - certificate->kv_share) < 1e-6 &&
         fabs(read.worst_loss - certificate->worst_loss) < 1e-6);
    must(certificate_write(&read, &again, &error) && text.n == again.n && !memcmp(text.data, again.data, text.n));
    buffer_done(&again);
    buffer_done(&text);
}

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
    write_and_read(&certificate);
    return 0;
}
