/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/select_state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NO_POSITION UINT32_MAX
enum { OS_PAGE_WORDS = 1024, DEVICE_WORDS = 64 };

/* Two banks: the one that counts, and the one that a pass writes. */
typedef struct HeadState {
    SelectList lists[2];
    uint8_t bank;   /* which counts */
    bool is_edited; /* the other one is to count when the pass ends */
} HeadState;

struct SelectState {
    Device *device; /* that has the words; NULL: the host */
    uint32_t max_sequences, n_heads;
    size_t bank_words;
    SelectSeq *seqs, *pending; /* [max_sequences] as counted; as the pass has left it */
    bool *is_touched;          /* [max_sequences] its words have memory; else no head is edited */
    HeadState *heads;          /* [max_sequences, n_heads] */
    uint32_t *words;           /* [max_sequences, n_heads, 2, bank_words] */
    size_t words_bytes;
};

/* All but the words. */
static bool take_seqs(SelectState *state, uint32_t max_sequences, uint32_t n_heads, size_t bank_words)
{
    state->max_sequences = max_sequences;
    state->n_heads = n_heads;
    state->bank_words = bank_words;
    state->seqs = calloc(max_sequences, sizeof *state->seqs);
    state->pending = calloc(max_sequences, sizeof *state->pending);
    state->is_touched = calloc(max_sequences, sizeof *state->is_touched);
    state->heads = calloc((size_t)max_sequences * n_heads, sizeof *state->heads);
    return state->seqs && state->pending && state->is_touched && state->heads &&
           !__builtin_mul_overflow((size_t)max_sequences * n_heads * 2 * sizeof *state->words, bank_words,
                                   &state->words_bytes);
}

static bool take_words(SelectState *state)
{
    if (state->device) {
        if (state->words_bytes) state->words = state->device->ops->alloc(state->device, state->words_bytes);
        return state->words || !state->words_bytes;
    }
    void *words =
        mmap(NULL, state->words_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (words != MAP_FAILED) state->words = words;
    return state->words;
}

static bool state_new(Device *device, uint32_t max_sequences, uint32_t n_heads, size_t bank_words,
                      SelectState **ret_state, Error *error)
{
    SelectState *state = calloc(1, sizeof *state);
    if (!state) return error_set(error, ERR_NO_MEMORY, "no memory for selections");
    state->device = device;
    if (!take_seqs(state, max_sequences, n_heads, bank_words) || !take_words(state)) {
        select_state_free(state);
        return error_set(error, ERR_NO_MEMORY, "no memory for the selections of %u sequences", max_sequences);
    }
    *ret_state = state;
    return true;
}

bool select_state_new(uint32_t max_sequences, uint32_t n_heads, uint32_t max_sectors, SelectState **ret_state,
                      Error *error)
{
    size_t words = ((size_t)max_sectors * (SELECT_MAX_STAGES + 1) + OS_PAGE_WORDS - 1) / OS_PAGE_WORDS * OS_PAGE_WORDS;
    return state_new(NULL, max_sequences, n_heads, words, ret_state, error);
}

/* Kernels write four words at once. */
static size_t device_bank(uint32_t max_list)
{
    return ((size_t)max_list + DEVICE_WORDS - 1) / DEVICE_WORDS * DEVICE_WORDS;
}

bool select_state_new_on(Device *device, uint32_t max_sequences, uint32_t n_heads, uint32_t max_list,
                         SelectState **ret_state, Error *error)
{
    return state_new(device, max_sequences, n_heads, device_bank(max_list), ret_state, error);
}

uint64_t select_state_device_bytes(uint32_t max_sequences, uint32_t n_heads, uint32_t max_list)
{
    return (uint64_t)max_sequences * n_heads * 2 * device_bank(max_list) * sizeof(uint32_t);
}

void select_state_free(SelectState *state)
{
    if (!state) return;
    if (state->words && state->device)
        state->device->ops->free(state->device, state->words, state->words_bytes);
    else if (state->words)
        munmap(state->words, state->words_bytes);
    free(state->heads);
    free(state->is_touched);
    free(state->pending);
    free(state->seqs);
    free(state);
}

static HeadState *head_at(const SelectState *state, SeqId seq, uint32_t head)
{
    return &state->heads[(size_t)seq * state->n_heads + head];
}

static uint32_t *words_at(const SelectState *state, SeqId seq, uint32_t head, uint32_t bank)
{
    return state->words + (((size_t)seq * state->n_heads + head) * 2 + bank) * state->bank_words;
}

static size_t n_words(const SelectList *list)
{
    size_t n = list->n_sectors;
    for (uint32_t i = 0; i < list->n_stages; i++) n += list->n[i];
    return n;
}

/* A failed copy leaves a failed device, and nothing that it made is told any more. */
static void copy_words(const SelectState *state, void *to, const void *from, size_t n)
{
    if (!state->device)
        memcpy(to, from, n * sizeof *state->words);
    else if (!device_copy(state->device, to, from, n * sizeof *state->words))
        state->device->has_failed = true;
}

static uint32_t bank_in_pass(const HeadState *head)
{
    return head->is_edited ? !head->bank : head->bank;
}

void select_state_clear(SelectState *state, SeqId seq)
{
    memset(head_at(state, seq, 0), 0, state->n_heads * sizeof *state->heads);
}

void select_state_open(SelectState *state, SeqId seq)
{
    select_state_clear(state, seq);
    state->seqs[seq] = state->pending[seq] = (SelectSeq){.decode_from = NO_POSITION};
}

/* Its memory is for whoever needs some. */
void select_state_close(SelectState *state, SeqId seq)
{
    size_t bytes = state->words_bytes / state->max_sequences;
    if (state->is_touched[seq] && !state->device)
        (void)madvise((char *)state->words + seq * bytes, bytes, MADV_DONTNEED);
    state->is_touched[seq] = false;
    select_state_clear(state, seq);
}

void select_state_fork(SelectState *state, SeqId from, SeqId to)
{
    state->seqs[to] = state->pending[to] = state->seqs[from];
    for (uint32_t i = 0; i < state->n_heads; i++) {
        const HeadState *head = head_at(state, from, i);
        HeadState *copy = head_at(state, to, i);
        *copy = (HeadState){.lists = {head->lists[head->bank]}};
        state->is_touched[to] |= copy->lists[0].n_stages > 0;
        copy_words(state, words_at(state, to, i, 0), words_at(state, from, i, head->bank), n_words(&copy->lists[0]));
    }
}

SelectSeq *select_state_seq(SelectState *state, SeqId seq)
{
    return &state->pending[seq];
}

const SelectList *select_state_list(const SelectState *state, SeqId seq, uint32_t head, const uint32_t **ret_words)
{
    const HeadState *at = head_at(state, seq, head);
    uint32_t bank = bank_in_pass(at);
    *ret_words = words_at(state, seq, head, bank);
    return &at->lists[bank];
}

SelectList *select_state_edit(SelectState *state, SeqId seq, uint32_t head, uint32_t **ret_words)
{
    HeadState *at = head_at(state, seq, head);
    state->is_touched[seq] = true;
    if (!at->is_edited) {
        uint32_t old = at->bank;
        at->lists[!old] = at->lists[old];
        if (!state->device)
            copy_words(state, words_at(state, seq, head, !old), words_at(state, seq, head, old),
                       n_words(&at->lists[old]));
        at->is_edited = true;
    }
    *ret_words = words_at(state, seq, head, !at->bank);
    return &at->lists[!at->bank];
}

void select_state_commit(SelectState *state, SeqId seq)
{
    state->seqs[seq] = state->pending[seq];
    if (!state->is_touched[seq]) return;
    for (uint32_t i = 0; i < state->n_heads; i++) {
        HeadState *head = head_at(state, seq, i);
        head->bank = (uint8_t)bank_in_pass(head);
        head->is_edited = false;
    }
}

void select_state_revert(SelectState *state, SeqId seq)
{
    state->pending[seq] = state->seqs[seq];
    for (uint32_t i = 0; i < state->n_heads && state->is_touched[seq]; i++) head_at(state, seq, i)->is_edited = false;
}

/* ---- copies ---- */

size_t select_state_bytes(const SelectState *state, SeqId seq)
{
    size_t bytes = sizeof *state->seqs;
    for (uint32_t i = 0; i < state->n_heads; i++) {
        const HeadState *head = head_at(state, seq, i);
        bytes += sizeof *head->lists + n_words(&head->lists[head->bank]) * sizeof *state->words;
    }
    return bytes;
}

/* Ordinary memory of the host is on its way no longer than to here. */
static void wait_for_copies(const SelectState *state)
{
    if (state->device && state->words && !device_sync(state->device)) state->device->has_failed = true;
}

static char *put(char *to, const void *from, size_t n)
{
    memcpy(to, from, n);
    return to + n;
}

static const char *get(const char *from, void *to, size_t n)
{
    memcpy(to, from, n);
    return from + n;
}

void select_state_read(const SelectState *state, SeqId seq, void *dst)
{
    char *at = put(dst, &state->seqs[seq], sizeof *state->seqs);
    for (uint32_t i = 0; i < state->n_heads; i++) {
        const HeadState *head = head_at(state, seq, i);
        const SelectList *list = &head->lists[head->bank];
        at = put(at, list, sizeof *list);
        copy_words(state, at, words_at(state, seq, i, head->bank), n_words(list));
        at += n_words(list) * sizeof *state->words;
    }
    wait_for_copies(state);
}

void select_state_write(SelectState *state, SeqId seq, const void *src)
{
    const char *at = get(src, &state->seqs[seq], sizeof *state->seqs);
    state->pending[seq] = state->seqs[seq];
    for (uint32_t i = 0; i < state->n_heads; i++) {
        HeadState *head = head_at(state, seq, i);
        *head = (HeadState){0};
        at = get(at, &head->lists[0], sizeof head->lists[0]);
        state->is_touched[seq] |= head->lists[0].n_stages > 0;
        copy_words(state, words_at(state, seq, i, 0), at, n_words(&head->lists[0]));
        at += n_words(&head->lists[0]) * sizeof *state->words;
    }
    wait_for_copies(state);
}
