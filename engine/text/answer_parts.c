/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/answer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void answer_parts_init(AnswerParts *parts, size_t max_bytes)
{
    *parts = (AnswerParts){0};
    buffer_init(&parts->text, max_bytes);
}

void answer_parts_done(AnswerParts *parts)
{
    buffer_done(&parts->text);
    free(parts->items);
    parts->items = NULL;
    parts->n = parts->capacity = 0;
}

void answer_parts_clear(AnswerParts *parts)
{
    buffer_clear(&parts->text);
    parts->n = 0;
    parts->error = (Error){0};
}

static bool grow(AnswerParts *parts)
{
    uint32_t capacity = parts->capacity ? parts->capacity * 2 : 8;
    AnswerPart *more = realloc(parts->items, capacity * sizeof *more);
    if (!more) return error_set(&parts->error, ERR_NO_MEMORY, "no memory for the parts of an answer");
    parts->items = more;
    parts->capacity = capacity;
    return true;
}

/* Appends without the marks that are control tokens: two bytes each. */
static bool append_text(AnswerParts *parts, const char *text, size_t n)
{
    while (n) {
        if (parts->is_in_control) {
            parts->is_in_control = false;
            text++;
            n--;
            continue;
        }
        const char *control = memchr(text, ANSWER_CONTROL, n);
        size_t n_before = control ? (size_t)(control - text) : n;
        if (!buffer_append(&parts->text, text, n_before, &parts->error)) return false;
        parts->is_in_control = control != NULL;
        n -= n_before + (control != NULL);
        text += n_before + (control != NULL);
    }
    return true;
}

void answer_parts_add(AnswerParts *parts, PartKind kind, const char *text, size_t n)
{
    if (parts->error.code != ERR_NONE || (!n && kind != PART_CALL)) return;
    bool joins = parts->n && kind != PART_CALL && parts->items[parts->n - 1].kind == kind;
    if (!joins && parts->n == parts->capacity && !grow(parts)) return;
    size_t before = parts->text.n;
    if (!append_text(parts, text, n)) return;
    size_t n_added = parts->text.n - before;
    if (!n_added && kind != PART_CALL) return;
    if (!joins) parts->items[parts->n++] = (AnswerPart){.kind = kind};
    parts->items[parts->n - 1].n_bytes += (uint32_t)n_added;
}

void answer_parts_add_escaped(AnswerParts *parts, PartKind kind, const char *text, size_t n)
{
    static const char letters[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    for (size_t i = 0; i < n; i++) {
        const char *letter = text[i] ? strchr(letters, text[i]) : NULL;
        char code[8] = {'\\', letter ? names[letter - letters] : 'u'};
        if (!letter && (unsigned char)text[i] < 0x20) snprintf(code, sizeof code, "\\u%04x", (unsigned)text[i]);
        if (letter || (unsigned char)text[i] < 0x20)
            answer_parts_add(parts, kind, code, strlen(code));
        else
            answer_parts_add(parts, kind, &text[i], 1);
    }
}

bool answer_parts_end(const AnswerParts *parts, Error *error)
{
    if (parts->error.code == ERR_NONE) return true;
    *error = parts->error;
    return false;
}
