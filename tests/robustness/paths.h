/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The paths on which every allocation is made to fail once. A path runs from nothing to nothing: what it makes it
 * frees, whatever happens. One thread.
 */
#pragma once
#include "base/buffer.h"
#include "engine/engine.h"

/* What all paths work with, made before any failure. */
typedef struct World {
    char model_path[128];
    char config_path[160], roles_path[160], session_dir[160];
    char split_paths[2][160]; /* a model in two files */
    char spm_path[160];       /* a vocabulary of SentencePiece */
    Engine *engine;
    const char *broken; /* a promise that the path saw broken: an output touched on failure, ...; NULL: none */
} World;

typedef struct Path {
    const char *name;
    /* false and *error, or true and what it has made as text in *digest: the same in every run that succeeds. */
    bool (*run)(World *world, Buffer *digest, Error *error);
} Path;

extern const Path load_paths[], request_paths[], answer_paths[], server_paths[]; /* a row without a name ends them */

/* An output before the call: left as it is on failure. */
#define UNTOUCHED ((void *)(uintptr_t)0x5A5A)

/* For the digest; memory for it is taken while nothing fails. */
void digest_add(Buffer *digest, const char *text, size_t n);
void digest_count(Buffer *digest, uint64_t value);
