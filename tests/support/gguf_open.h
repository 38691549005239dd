/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening bytes as a GGUF file the way tests want it: from a copy of exactly that size, so that a sanitizer sees the
 * first byte read too far, and reading everything that the accessors give. Any thread.
 */
#pragma once
#include "engine/model/gguf.h"

/* Opens, reads every key, value, string and tensor byte at the edges, and closes; false with *error when refused. */
LW_CHECK bool gguf_open_and_read(const void *bytes, size_t n, Error *error);
