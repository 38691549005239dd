/* SPDX-License-Identifier: Apache-2.0 */
/* make_tiny_model OUT [NAME=VALUE ...]: writes a tiny model for tests of the whole program. */
#include "tests/support/tiny_model.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    TinyModel model = tiny_model_default();
    Error error;
    if (argc < 2) {
        fputs("usage: make_tiny_model OUT [NAME=VALUE ...], such as type=Q8_0 seed=7 tied=0\n", stderr);
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        if (tiny_model_set(&model, argv[i])) continue;
        fprintf(stderr, "make_tiny_model: '%s' is no setting\n", argv[i]);
        return 2;
    }
    if (tiny_model_save(&model, argv[1], &error)) return 0;
    fprintf(stderr, "make_tiny_model: %s\n", error.text);
    return 1;
}
