/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/gguf_impl.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    bool is_int, is_float;
    int64_t min, max; /* of integers; U64's maximum is cut, as gguf_int_at does */
} type_info[] = {
    [GGUF_U8] = {"u8", true, false, 0, UINT8_MAX},    [GGUF_I8] = {"i8", true, false, INT8_MIN, INT8_MAX},
    [GGUF_U16] = {"u16", true, false, 0, UINT16_MAX}, [GGUF_I16] = {"i16", true, false, INT16_MIN, INT16_MAX},
    [GGUF_U32] = {"u32", true, false, 0, UINT32_MAX}, [GGUF_I32] = {"i32", true, false, INT32_MIN, INT32_MAX},
    [GGUF_F32] = {"f32", false, true, 0, 0},          [GGUF_BOOL] = {"bool", false, false, 0, 1},
    [GGUF_STRING] = {"string", false, false, 0, 0},   [GGUF_ARRAY] = {"array", false, false, 0, 0},
    [GGUF_U64] = {"u64", true, false, 0, INT64_MAX},  [GGUF_I64] = {"i64", true, false, INT64_MIN, INT64_MAX},
    [GGUF_F64] = {"f64", false, true, 0, 0},
};

const char *gguf_type_name(GgufType type)
{
    return type_info[type].name;
}

#define LOAD(type, kv, i)                                                                                              \
    __extension__({                                                                                                    \
        type value_;                                                                                                   \
        memcpy(&value_, (kv)->data + (i) * sizeof value_, sizeof value_);                                              \
        value_;                                                                                                        \
    })

int64_t gguf_int_at(const GgufKv *kv, uint64_t i)
{
    switch (kv->type) {
    case GGUF_U8:
        return LOAD(uint8_t, kv, i);
    case GGUF_I8:
        return LOAD(int8_t, kv, i);
    case GGUF_U16:
        return LOAD(uint16_t, kv, i);
    case GGUF_I16:
        return LOAD(int16_t, kv, i);
    case GGUF_U32:
        return LOAD(uint32_t, kv, i);
    case GGUF_I32:
        return LOAD(int32_t, kv, i);
    case GGUF_BOOL:
        return LOAD(uint8_t, kv, i) != 0;
    case GGUF_I64:
        return LOAD(int64_t, kv, i);
    case GGUF_U64: {
        uint64_t value = LOAD(uint64_t, kv, i);
        return value > INT64_MAX ? INT64_MAX : (int64_t)value;
    }
    default:
        return 0;
    }
}

double gguf_float_at(const GgufKv *kv, uint64_t i)
{
    if (kv->type == GGUF_F32) return (double)LOAD(float, kv, i);
    if (kv->type == GGUF_F64) return LOAD(double, kv, i);
    return (double)gguf_int_at(kv, i);
}

GgufString gguf_next_string(GgufStringIter *iter)
{
    uint64_t n;
    memcpy(&n, iter->at, sizeof n);
    GgufString text = {(const char *)iter->at + sizeof n, (size_t)n};
    iter->at += sizeof n + n;
    return text;
}

static bool fail_missing(const Gguf *gguf, const char *key, Error *error)
{
    return error_set_param(error, ERR_INVALID, key, "%s: key '%s' is missing", gguf_path(gguf), key);
}

static bool fail_type(const char *path, const GgufKv *kv, const char *key, const char *wanted, Error *error)
{
    return error_set_param(error, ERR_INVALID, key, "%s: key '%s' at offset %" PRIu64 ": must be %s, not %s%s", path,
                           key, kv->offset, wanted, kv->is_array ? "array of " : "", gguf_type_name(kv->type));
}

bool gguf_kv_read_u32(const char *path, const GgufKv *kv, const char *key, uint32_t *value, Error *error)
{
    if (kv->is_array || !type_info[kv->type].is_int) return fail_type(path, kv, key, "an integer", error);
    int64_t found = gguf_int_at(kv, 0);
    if (found < 0 || found > UINT32_MAX)
        return error_set_param(error, ERR_INVALID, key,
                               "%s: key '%s' at offset %" PRIu64 ": %" PRId64 " is not in 0 ... 4294967295", path, key,
                               kv->offset, found);
    *value = (uint32_t)found;
    return true;
}

static bool read_f32(const Gguf *gguf, const GgufKv *kv, const char *key, float *value, Error *error)
{
    if (kv->is_array || !type_info[kv->type].is_float) return fail_type(gguf_path(gguf), kv, key, "a float", error);
    float found = (float)gguf_float_at(kv, 0);
    if (!isfinite(found))
        return error_set_param(error, ERR_INVALID, key, "%s: key '%s' at offset %" PRIu64 ": %g is not a finite f32",
                               gguf_path(gguf), key, kv->offset, gguf_float_at(kv, 0));
    *value = found;
    return true;
}

static bool read_string(const Gguf *gguf, const GgufKv *kv, const char *key, GgufString *value, Error *error)
{
    if (kv->is_array || kv->type != GGUF_STRING) return fail_type(gguf_path(gguf), kv, key, "a string", error);
    *value = gguf_next_string(&(GgufStringIter){kv->data});
    return true;
}

bool gguf_get_u32(const Gguf *gguf, const char *key, uint32_t *value, Error *error)
{
    const GgufKv *kv = gguf_find(gguf, key);
    return kv ? gguf_kv_read_u32(gguf_path(gguf), kv, key, value, error) : fail_missing(gguf, key, error);
}

bool gguf_get_string(const Gguf *gguf, const char *key, GgufString *value, Error *error)
{
    const GgufKv *kv = gguf_find(gguf, key);
    return kv ? read_string(gguf, kv, key, value, error) : fail_missing(gguf, key, error);
}

bool gguf_opt_u32(const Gguf *gguf, const char *key, uint32_t *value, Error *error)
{
    const GgufKv *kv = gguf_find(gguf, key);
    return !kv || gguf_kv_read_u32(gguf_path(gguf), kv, key, value, error);
}

bool gguf_opt_f32(const Gguf *gguf, const char *key, float *value, Error *error)
{
    const GgufKv *kv = gguf_find(gguf, key);
    return !kv || read_f32(gguf, kv, key, value, error);
}

bool gguf_opt_bool(const Gguf *gguf, const char *key, bool *value, Error *error)
{
    const GgufKv *kv = gguf_find(gguf, key);
    if (!kv) return true;
    if (kv->is_array || kv->type != GGUF_BOOL) return fail_type(gguf_path(gguf), kv, key, "a bool", error);
    *value = gguf_int_at(kv, 0) != 0;
    return true;
}

bool gguf_opt_string(const Gguf *gguf, const char *key, GgufString *value, Error *error)
{
    const GgufKv *kv = gguf_find(gguf, key);
    return !kv || read_string(gguf, kv, key, value, error);
}

static bool element_fits(GgufType have, GgufType wanted)
{
    if (have == wanted) return true;
    if (type_info[wanted].is_int) return type_info[have].is_int;
    return type_info[wanted].is_float && type_info[have].is_float;
}

bool gguf_get_array(const Gguf *gguf, const char *key, GgufType element, const GgufKv **ret_kv, Error *error)
{
    const GgufKv *kv = gguf_find(gguf, key);
    if (!kv) return fail_missing(gguf, key, error);
    if (!kv->is_array || !element_fits(kv->type, element)) {
        char wanted[32] = "array of ";
        return fail_type(gguf_path(gguf), kv, key, strcat(wanted, gguf_type_name(element)), error);
    }
    for (uint64_t i = 0; type_info[element].is_int && kv->type != element && i < kv->n; i++) {
        int64_t value = gguf_int_at(kv, i);
        if (value >= type_info[element].min && value <= type_info[element].max) continue;
        return error_set_param(error, ERR_INVALID, key,
                               "%s: key '%s' at offset %" PRIu64 ": element %" PRIu64 " (%" PRId64 ") is no %s",
                               gguf_path(gguf), key, kv->offset, i, value, gguf_type_name(element));
    }
    *ret_kv = kv;
    return true;
}
