/* SPDX-License-Identifier: Apache-2.0 */
/* What 'longwave inspect' found, and its two ways to print it. Main thread. */
#pragma once
#include "base/buffer.h"
#include "config/config.h"
#include "engine/kv/kv_class.h"
#include "engine/select/wavelength.h"

enum { INSPECT_MAX_TYPES = 64 }; /* of any ids; a file with more has its first ones listed */

typedef struct InspectType {
    DType type;
    uint64_t n_tensors, n_params, n_bytes;
} InspectType;

/* What the plain wavelength rule prunes in the layers that see everything. */
typedef struct InspectWaves {
    uint32_t n_layers; /* of those; 0: all have sliding windows, and the rest means nothing */
    double theta[KV_MAX_DIM / 2];
    WaveHead head;
    AttnBand bands[WAVE_MAX_BANDS];
    uint32_t n_bands;
    WaveCount exact_prefill, exact_row, bands_prefill, bands_row; /* row: the last one alone */
    bool has_closed_form;
    double closed_prefill, closed_row; /* share that is pruned */
} InspectWaves;

typedef struct Inspection {
    const Config *config;
    const Gguf *gguf;        /* NULL: a named shape */
    const ModelShape *shape; /* NULL: the file's architecture, dimensions or types are no good */
    Error shape_error;       /* then: why */
    InspectType types[INSPECT_MAX_TYPES];
    size_t n_types;
    uint64_t n_params, weight_bytes; /* weight_bytes 0: a named shape */
    uint64_t context;                /* tokens of one sequence, for the memory figures */
    KvTypes kv_types;
    const InspectWaves *waves; /* NULL: not asked for */
    const struct Plan *plan;   /* the same */
} Inspection;

/* Share of the terms that are not kept. */
double inspect_pruned(WaveCount count);

/* A row of the memory figures; the one of kv_type comes last when its classes differ. */
typedef struct InspectKv {
    const char *name;
    KvTypes types;
    bool is_selected;
} InspectKv;
bool inspect_kv_at(const Inspection *inspection, uint32_t i, InspectKv *ret_row); /* false: past the last */

/*
 * Bytes from a file as text: invalid UTF-8 and NUL become U+FFFD, at most max_points code points are kept and '...'
 * ends what was cut. one_line: control characters become escapes, so that a file cannot drive a terminal.
 */
LW_CHECK bool inspect_clean(Buffer *out, GgufString bytes, size_t max_points, bool one_line, Error *error);

LW_CHECK bool inspect_write_text(const Inspection *inspection, Buffer *out, Error *error);
LW_CHECK bool inspect_write_json(const Inspection *inspection, Buffer *out, Error *error);
