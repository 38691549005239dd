/* SPDX-License-Identifier: Apache-2.0 */
/* What tests read from outside: the recorded numbers in tests/golden/, and real model files. Any thread. */
#pragma once
#include <cjson/cJSON.h>

/* A JSON file of tests/golden/, for cJSON_Delete; aborts with a message when it cannot be read. */
cJSON *golden_load(const char *name);

/* $LONGWAVE_TEST_MODEL: the SmolLM2-135M-Instruct GGUF; NULL when it is not set, and tests that need it skip. */
const char *test_model_path(void);
/* $LONGWAVE_TEST_GEMMA: the Gemma 3 270M Q4_K_M GGUF, likewise. */
const char *test_gemma_path(void);
