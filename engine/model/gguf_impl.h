/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the gguf_*.c files alone: one file of a model, and reading it with errors that name the place. */
#pragma once
#include "engine/model/gguf.h"

/* One file, parsed; a model may have several. */
typedef struct GgufPart {
    const uint8_t *base;
    uint64_t n_bytes;
    bool is_mapped;
    char *path;
    uint32_t version;
    size_t n_kv, n_tensors;
    GgufKv *kv;
    GgufTensor *tensors;      /* in file order, without overlap; names may be there twice */
    const GgufKv **kv_sorted; /* by name; sorting, unlike hashing, has no slow case an attacker could choose */
} GgufPart;

/* Takes base, n_bytes and path; on failure the tables are for gguf_part_done like the rest. */
LW_CHECK bool gguf_part_parse(GgufPart *part, Error *error);
void gguf_part_done(GgufPart *part);
const GgufPart *gguf_part(const Gguf *gguf, uint32_t i);
const GgufKv *gguf_part_find(const GgufPart *part, const char *key); /* NULL: absent */

/* A key's value as u32; the error names path. */
LW_CHECK bool gguf_kv_read_u32(const char *path, const GgufKv *kv, const char *key, uint32_t *value, Error *error);

int gguf_compare_strings(GgufString a, GgufString b);
/* The end of a path tells files apart, and a long path must leave room for the reason. */
const char *gguf_path_end(const char *path);

/* Where we are in a file, and what an error is about. */
typedef struct GgufReader {
    const GgufPart *part;
    uint64_t at;
    const char *kind; /* "header", "key", "tensor" */
    uint64_t index;
    uint64_t start;  /* offset of the subject */
    GgufString name; /* data NULL: not read yet */
    Error *error;
} GgufReader;

/* Writes "FILE: KIND 'NAME' at offset START: " and the reason; returns false. */
bool gguf_fail(GgufReader *r, ErrorCode code, const char *fmt, ...) LW_PRINTF(3, 4);
void gguf_begin(GgufReader *r, const char *kind, uint64_t index);
uint64_t gguf_bytes_left(const GgufReader *r);
/* what: names the field in the error */
bool gguf_read_bytes(GgufReader *r, void *out, size_t n, const char *what);
bool gguf_read_u32(GgufReader *r, uint32_t *ret, const char *what);
bool gguf_read_u64(GgufReader *r, uint64_t *ret, const char *what);
bool gguf_read_string(GgufReader *r, GgufString *ret, const char *what);
bool gguf_read_name(GgufReader *r, GgufString *ret);
