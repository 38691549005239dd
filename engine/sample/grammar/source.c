/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/source.h"

#include "base/array.h"
#include "base/numbers.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static uint32_t decode(const Source *source, size_t *ret_len)
{
    static const uint8_t lead_bits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    if (source->at >= source->n) return SOURCE_END;
    const uint8_t *bytes = (const uint8_t *)source->text + source->at;
    (void)utf8_step(bytes, source->n - source->at, ret_len);
    uint32_t code = bytes[0] & lead_bits[*ret_len];
    for (size_t i = 1; i < *ret_len; i++) code = code << 6 | (bytes[i] & 0x3F);
    return code;
}

uint32_t source_peek(const Source *source)
{
    size_t len;
    return decode(source, &len);
}

uint32_t source_next(Source *source)
{
    size_t len = 0;
    uint32_t code = decode(source, &len);
    source->at += len;
    return code;
}

bool source_take(Source *source, const char *word)
{
    size_t n = strlen(word);
    if (source->n - source->at < n || memcmp(source->text + source->at, word, n)) return false;
    source->at += n;
    return true;
}

bool source_hex(Source *source, size_t n_digits, uint32_t *ret_code)
{
    uint32_t code = 0;
    if (source->n - source->at < n_digits) return false;
    for (size_t i = 0; i < n_digits; i++) {
        int value = hex_value(source->text[source->at + i]);
        if (value < 0 || code > SOURCE_MAX_CODE) return false;
        code = code << 4 | (uint32_t)value;
    }
    if (code > SOURCE_MAX_CODE) return false;
    source->at += n_digits;
    *ret_code = code;
    return true;
}

bool source_number(Source *source, uint32_t *ret_number)
{
    uint32_t number = 0;
    size_t at = source->at;
    for (; at < source->n && source->text[at] >= '0' && source->text[at] <= '9'; at++) {
        if (at - source->at == 9) return false;
        number = number * 10 + (uint32_t)(source->text[at] - '0');
    }
    if (at == source->at) return false;
    source->at = at;
    *ret_number = number;
    return true;
}

/* Room for one more of size bytes, or the builder has failed. */
static bool reserve(GrammarBuilder *builder, void *array, uint32_t *max, size_t n, size_t size)
{
    if (array_reserve(array, max, n + 1, UINT32_MAX, size)) return true;
    (void)grammar_fail(builder, ERR_NO_MEMORY, "no memory for a grammar");
    return false;
}

void node_list_push(GrammarBuilder *builder, NodeList *list, GrammarNode node)
{
    if (reserve(builder, &list->nodes, &list->max, list->n, sizeof node)) list->nodes[list->n++] = node;
}

void node_list_done(NodeList *list)
{
    free(list->nodes);
    *list = (NodeList){0};
}

void range_list_push(GrammarBuilder *builder, RangeList *list, uint32_t first, uint32_t last)
{
    if (reserve(builder, &list->ranges, &list->max, list->n, sizeof *list->ranges))
        list->ranges[list->n++] = (CodeRange){first, last};
}

void range_list_done(RangeList *list)
{
    free(list->ranges);
    *list = (RangeList){0};
}
