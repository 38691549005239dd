/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_ids.h"

#include <math.h>
#include <stdio.h>

bool api_ids_read(const cJSON *array, const char *path, uint32_t n_vocab, TokenList *list, Error *error)
{
    size_t n, i = 0;
    if (!json_get_array(array, path, JSON_MAX_VALUES, &n, error)) return false;
    for (const cJSON *item = array->child; item; item = item->next, i++) {
        double value = item->valuedouble;
        if (!cJSON_IsNumber(item) || value != floor(value) || value < 0 || value >= n_vocab) {
            char field[64];
            snprintf(field, sizeof field, "%.40s[%zu]", path, i);
            return error_set_param(error, ERR_INVALID, field, "'%s' must be a token id from 0 to %u", field,
                                   n_vocab - 1);
        }
        if (!token_list_push(list, (uint32_t)value, error)) return false;
    }
    return true;
}
