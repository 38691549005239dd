/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/certificate.h"

#include "engine/eval/files.h"
#include "engine/select/policy_check.h"
#include "engine/select/presets.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TOKENS = 1 << 28, MAX_COUNT = 1 << 24, HASH_DIGITS = 16 };

typedef enum MemberKind { MEMBER_VERSION, MEMBER_HASH, MEMBER_TEXT, MEMBER_COUNT, MEMBER_REAL } MemberKind;

typedef struct Member {
    const char *name;
    MemberKind kind;
    size_t offset;
    double min, max; /* of a text: bytes */
} Member;

#define AT(member) offsetof(Certificate, member)
static const Member members[] = {
    {"longwave_certificate", MEMBER_VERSION, 0, 1, 1},
    {"model", MEMBER_HASH, AT(model), HASH_DIGITS, HASH_DIGITS},
    {"policy", MEMBER_TEXT, AT(policy), 1, CERTIFICATE_MAX_POLICY - 1},
    {"roles", MEMBER_HASH, AT(roles), HASH_DIGITS, HASH_DIGITS},
    {"kv_type", MEMBER_TEXT, AT(kv_type), 1, CERTIFICATE_MAX_KV_TYPE - 1},
    {"crossover", MEMBER_COUNT, AT(crossover), 0, MAX_TOKENS},
    {"length", MEMBER_COUNT, AT(length), 1, MAX_TOKENS},
    {"questions", MEMBER_COUNT, AT(questions), CERTIFICATE_MIN_QUESTIONS, MAX_COUNT},
    {"tasks", MEMBER_COUNT, AT(tasks), CERTIFICATE_MIN_TASKS, MAX_COUNT},
    {"mean_loss", MEMBER_REAL, AT(mean_loss), -1, CERTIFICATE_MAX_MEAN_LOSS},
    {"worst_loss", MEMBER_REAL, AT(worst_loss), -1, CERTIFICATE_MAX_WORST_LOSS},
    {"kv_share", MEMBER_REAL, AT(kv_share), 0, 1000},
};
enum { N_MEMBERS = sizeof members / sizeof *members };

static bool refuse(const char *name, const char *why, Error *error)
{
    return error_set(error, ERR_INVALID, "the certificate's '%.64s' %s", name, why);
}

/* Names of policies and types, no more: they reach logs and parsers. */
static bool is_plain(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+=:,@/";
    return strspn(text, plain) == strlen(text);
}

static bool read_text(const Member *member, const cJSON *item, char *at, Error *error)
{
    if (!cJSON_IsString(item)) return refuse(member->name, "is no string", error);
    size_t n = strlen(item->valuestring);
    if ((double)n < member->min || (double)n > member->max) return refuse(member->name, "has a wrong length", error);
    if (!is_plain(item->valuestring)) return refuse(member->name, "holds characters that no name has", error);
    if (member->kind == MEMBER_TEXT) {
        memcpy(at, item->valuestring, n + 1);
        return true;
    }
    if (strspn(item->valuestring, "0123456789abcdef") != n) return refuse(member->name, "is no hex number", error);
    return sscanf(item->valuestring, "%16" SCNx64, (uint64_t *)(void *)at) == 1;
}

static bool read_number(const Member *member, const cJSON *item, char *at, Error *error)
{
    double x = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    if (!(x >= member->min && x <= member->max)) {
        char why[80];
        snprintf(why, sizeof why, "is no number from %g to %g", member->min, member->max);
        return refuse(member->name, why, error);
    }
    if (member->kind == MEMBER_REAL)
        *(double *)(void *)at = x;
    else if (x != floor(x))
        return refuse(member->name, "is not whole", error);
    else if (member->kind == MEMBER_COUNT)
        *(uint32_t *)(void *)at = (uint32_t)x;
    return true;
}

static bool read_member(const Member *member, const cJSON *item, Certificate *certificate, Error *error)
{
    char *at = (char *)certificate + member->offset;
    bool is_text = member->kind == MEMBER_TEXT || member->kind == MEMBER_HASH;
    return is_text ? read_text(member, item, at, error) : read_number(member, item, at, error);
}

static bool read_members(const cJSON *root, Certificate *certificate, Error *error)
{
    bool seen[N_MEMBERS] = {false};
    for (const cJSON *item = root->child; item; item = item->next) {
        uint32_t i = 0;
        while (i < N_MEMBERS && strcmp(members[i].name, item->string)) i++;
        if (i == N_MEMBERS) return refuse(item->string, "is not known", error);
        if (seen[i]) return refuse(item->string, "comes twice", error);
        seen[i] = true;
        if (!read_member(&members[i], item, certificate, error)) return false;
    }
    for (uint32_t i = 0; i < N_MEMBERS; i++)
        if (!seen[i]) return refuse(members[i].name, "is missing", error);
    if (certificate->crossover > certificate->length) return refuse("crossover", "is beyond the length", error);
    return certificate->worst_loss >= certificate->mean_loss || refuse("worst_loss", "is less than the mean", error);
}

bool certificate_parse(const char *text, size_t n, Certificate *ret_certificate, Error *error)
{
    const char *end = NULL;
    if (n > CERTIFICATE_MAX_BYTES)
        return error_set(error, ERR_TOO_LARGE, "the certificate has more than %d bytes", CERTIFICATE_MAX_BYTES);
    /* No name needs an escape, and an escaped NUL would cut one short. */
    if (memchr(text, '\0', n) || memchr(text, '\\', n))
        return error_set(error, ERR_INVALID, "the certificate holds a NUL or a backslash");
    cJSON *root = cJSON_ParseWithLengthOpts(text, n, &end, false);
    while (root && end < text + n && strchr(" \t\r\n", *end)) end++;
    Certificate certificate = {0};
    bool ok = root && cJSON_IsObject(root) && end == text + n;
    if (!ok)
        error_set(error, ERR_INVALID, "the certificate is no JSON object");
    else
        ok = read_members(root, &certificate, error);
    cJSON_Delete(root);
    if (ok) *ret_certificate = certificate;
    return ok;
}

bool certificate_path(const char *model_path, Buffer *out, Error *error)
{
    return buffer_printf(out, error, "%s.certificate.json", model_path);
}

static bool load_file(const char *path, uint64_t model, Certificate *ret_certificate, Error *error)
{
    Buffer text;
    Certificate certificate;
    buffer_init(&text, CERTIFICATE_MAX_BYTES);
    bool ok = file_read(path, &text, error);
    if (ok && !certificate_parse(text.n ? text.data : "", text.n, &certificate, error))
        ok = error_prefix(error, "%s", path);
    buffer_done(&text);
    if (ok && certificate.model != model)
        ok = error_set(error, ERR_INVALID, "%s: the certificate is of another model: %016" PRIx64 ", not %016" PRIx64,
                       path, certificate.model, model);
    if (ok) *ret_certificate = certificate;
    return ok;
}

bool certificate_load(const char *model_path, uint64_t model, Certificate *ret_certificate, Error *error)
{
    Buffer path;
    buffer_init(&path, CERTIFICATE_MAX_BYTES);
    bool ok = certificate_path(model_path, &path, error) && load_file(path.data, model, ret_certificate, error);
    buffer_done(&path);
    return ok;
}

bool certificate_policy(const Certificate *certificate, PolicySpec *ret_spec, Error *error)
{
    PolicySpec spec;
    if (!policy_spec_parse(certificate->policy, strlen(certificate->policy), &spec, error))
        return error_prefix(error, "the certificate");
    if (preset_is_baseline(spec.preset))
        return error_set(error, ERR_INVALID, "the certificate's policy '%s' is there for comparison alone", spec.text);
    Selection *selection = &spec.policy.selection;
    if (selection->n_stages && selection->bypass < certificate->crossover) selection->bypass = certificate->crossover;
    if (!policy_check(&spec.policy, error)) return error_prefix(error, "the certificate's policy");
    *ret_spec = spec;
    return true;
}

bool certificate_write(const Certificate *c, Buffer *out, Error *error)
{
    return buffer_printf(out, error,
                         "{\"longwave_certificate\": 1,\n \"model\": \"%016" PRIx64 "\",\n \"policy\": \"%s\",\n"
                         " \"roles\": \"%016" PRIx64
                         "\",\n \"kv_type\": \"%s\",\n \"crossover\": %u,\n \"length\": %u,\n \"questions\": %u,\n"
                         " \"tasks\": %u,\n \"mean_loss\": %.6f,\n \"worst_loss\": %.6f,\n \"kv_share\": %.6f}\n",
                         c->model, c->policy, c->roles, c->kv_type, c->crossover, c->length, c->questions, c->tasks,
                         c->mean_loss, c->worst_loss, c->kv_share);
}

bool certificate_save(const char *model_path, const Certificate *certificate, Error *error)
{
    Buffer path, text;
    Certificate check;
    buffer_init(&path, CERTIFICATE_MAX_BYTES);
    buffer_init(&text, CERTIFICATE_MAX_BYTES);
    bool ok = is_plain(certificate->policy) && is_plain(certificate->kv_type);
    if (!ok) error_set(error, ERR_INVALID, "the certificate's policy is no plain name");
    ok = ok && certificate_path(model_path, &path, error) && certificate_write(certificate, &text, error) &&
         certificate_parse(text.data, text.n, &check, error) && file_replace(path.data, text.data, text.n, error);
    buffer_done(&path);
    buffer_done(&text);
    return ok;
}
