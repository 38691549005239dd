/* SPDX-License-Identifier: Apache-2.0 */
/* Files of head roles: any bytes give a policy whose numbers are in range, or an error that names the option. */
#include "engine/select/roles.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const ModelShape shape = {.n_layers = 5, .n_kv_heads = 3};
    const RolesModel model = {&shape, 0x0123456789abcdef};
    AttnPolicy policy;
    Error error = {0};
    Arena arena;
    arena_init(&arena, 4096, 1 << 20);
    if (roles_parse((const char *)data, n, "fuzz", &model, &arena, &policy, &error)) {
        if (!policy.recent_decode || !policy.recent_prefill || policy.sink % KV_PAGE_TOKENS) abort();
        for (int i = 0; i < 15; i++)
            if (policy.roles->streams[i] > 1) abort();
    } else if (error.code == ERR_NONE || strcmp(error.param, "roles") != 0) {
        abort();
    }
    arena_done(&arena);
    return 0;
}
