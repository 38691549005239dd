/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/session.h"
#include "engine/select/roles.h"
#include "scheduler/session_disk.h"
#include "scheduler/session_file.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 20, MAX_FILE_TOKENS = 1 << 28 };
_Static_assert((int)SESSION_MAX_SALT_BYTES == (int)PREFIX_MAX_SALT_BYTES, "what is cached can be saved, and back");

/* What comes next, when the disk is done with what it was asked for. */
typedef enum Phase {
    NO_CALL,
    WRITE_HEAD,
    WRITE_PAGE,
    COMMIT,
    END_SAVE,
    READ_FIXED,
    READ_HEAD,
    TAKE_HEAD,
    CHECK_PAGE,
    CHECK_END,
    LOAD_PAGE,
    END_REMOVE,
    ENDING /* the call has its result; the disk closes the file */
} Phase;

struct SessionStore {
    Engine *engine;
    PrefixCache *cache;
    SessionDisk *disk;
    uint64_t model, policies[ROLES_MAX_POLICIES]; /* fingerprints */
    uint32_t n_policies;

    /* of the call */
    SessionCall *call;
    Phase phase;
    Buffer head_bytes;
    SessionHead head;
    PolicyId policy;
    bool has_own_policy; /* it came with the call, for as long as that is under way */
    PageSet *sets;       /* [n_sets] of whose pages the store is an owner */
    uint32_t n_sets;
    SessionRecord record;
    uint32_t crc, record_crc; /* of the CRCs so far; of the record so far */
    uint64_t offset, n_bytes; /* in the file; n_bytes: of all of it */
    uint64_t n_left;          /* of the record, not asked for yet */
    size_t n_piece;           /* of the record, that the disk reads; 0: none */
    char *bytes;              /* [max_bytes] the disk's while it is busy */
    size_t max_bytes;
};

static const PageSet NO_PAGES = {{PAGE_NONE, PAGE_NONE, PAGE_NONE}};

bool session_store_new(const SessionParams *params, SessionStore **ret_store, Error *error)
{
    SessionStore *store = calloc(1, sizeof *store);
    if (!store) return error_set(error, ERR_NO_MEMORY, "no memory for sessions");
    store->engine = params->engine;
    store->cache = params->cache;
    buffer_init(&store->head_bytes, SIZE_MAX);
    const SessionDiskParams disk = {params->folder, params->wake, params->wake_arg};
    if (!session_disk_new(&disk, &store->disk, error)) {
        free(store);
        return false;
    }
    store->model = engine_model_fingerprint(params->engine);
    for (; store->n_policies < ROLES_MAX_POLICIES && engine_policy(params->engine, store->n_policies);
         store->n_policies++)
        store->policies[store->n_policies] = engine_policy_fingerprint(params->engine, store->n_policies);
    *ret_store = store;
    return true;
}

/* ---- the end of a call ---- */

static void release_pages(SessionStore *store)
{
    for (uint32_t i = 0; i < store->n_sets; i++) engine_pages_unref(store->engine, &store->sets[i]);
    free(store->sets);
    store->sets = NULL;
    store->n_sets = 0;
}

static void release_bytes(SessionStore *store)
{
    free(store->bytes);
    store->bytes = NULL;
    store->max_bytes = 0;
    buffer_done(&store->head_bytes);
}

static void finish(SessionStore *store)
{
    release_pages(store);
    if (store->has_own_policy) engine_policy_release(store->engine, store->policy);
    store->has_own_policy = false;
    store->phase = ENDING;
}

static void succeed(SessionStore *store)
{
    store->call->n_moved_tokens = store->head.n_tokens;
    store->call->n_moved_bytes = store->n_bytes;
    finish(store);
}

static void fail(SessionStore *store, const Error *error)
{
    store->call->error = *error;
    store->call->n_moved_tokens = 0;
    store->call->n_moved_bytes = 0;
    finish(store);
}

bool session_holds_pages(const SessionStore *store)
{
    return store->n_sets > 0;
}

void session_give_up(SessionStore *store, const Error *error)
{
    if (store->phase == NO_CALL || store->phase == ENDING) return;
    fail(store, error);
}

void session_store_free(SessionStore *store)
{
    if (!store) return;
    session_disk_free(store->disk); /* it may still use the bytes */
    release_pages(store);
    release_bytes(store);
    free(store);
}

static bool reserve_bytes(SessionStore *store, size_t n, Error *error)
{
    if (n <= store->max_bytes) return true;
    char *bytes = realloc(store->bytes, n);
    if (!bytes) return error_set(error, ERR_NO_MEMORY, "no memory for a page of %zu bytes", n);
    store->bytes = bytes;
    store->max_bytes = n;
    return true;
}

static bool new_sets(SessionStore *store, uint32_t n_tokens, Error *error)
{
    uint32_t n = (n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    store->sets = calloc(n, sizeof *store->sets);
    if (!store->sets) return error_set(error, ERR_NO_MEMORY, "no memory for a session of %u tokens", n_tokens);
    for (uint32_t i = 0; i < n; i++) store->sets[i] = NO_PAGES;
    store->n_sets = n;
    return true;
}

static const KvClassInfo *classes_of(const SessionStore *store, uint32_t *ret_n)
{
    return engine_policy_classes(store->engine, store->policy, ret_n);
}

/* The one that requests like the call would follow. */
static bool take_policy(SessionStore *store, Error *error)
{
    const SessionCall *call = store->call;
    AttnPolicy policy;
    if (call->policy >= store->n_policies) return error_set(error, ERR_INTERNAL, "there is no policy %u", call->policy);
    store->policy = call->policy;
    if (wish_is_plain(&call->attention)) return true;
    store->has_own_policy = wish_apply(&call->attention, engine_policy(store->engine, call->policy), &policy, error) &&
                            engine_policy_intern(store->engine, &policy, &store->policy, error);
    return store->has_own_policy;
}

/* ---- saving ---- */

/* Becomes an owner of the pages of the longest cached prefix. */
static bool take_prefix(SessionStore *store, Error *error)
{
    SessionCall *call = store->call;
    PrefixCursor cursor;
    const PageSet *sets;
    uint32_t n;
    PrefixEnd end;
    const PrefixKey key = {store->policy, call->salt, call->n_salt};
    prefix_cache_open(store->cache, &key, call->tokens, call->n_tokens, &cursor, &sets, &n, &end);
    bool ok = n > 0 ? new_sets(store, n, error) : error_set(error, ERR_NOT_FOUND, "nothing of this prompt is cached");
    for (uint32_t i = 0; ok && i < store->n_sets; i++) {
        store->sets[i] = sets[i];
        engine_pages_ref(store->engine, &sets[i]);
    }
    prefix_cache_close(store->cache, &cursor);
    if (!ok) return false;
    store->head.n_tokens = n;
    store->head.n_prefilled = cursor.n_prefilled < n ? cursor.n_prefilled : n;
    return true;
}

static void fill_head(SessionStore *store)
{
    SessionHead *head = &store->head;
    const KvClassInfo *classes = classes_of(store, &head->n_classes);
    head->model = store->model;
    head->policy = engine_policy_fingerprint(store->engine, store->policy);
    head->name = engine_policy(store->engine, store->policy)->name;
    head->n_name = (uint32_t)strnlen(head->name, SESSION_MAX_NAME_BYTES);
    head->salt = store->call->salt;
    head->n_salt = store->call->n_salt;
    for (SessionRecord record = {0}; session_next_record(head, classes, &record);) {
        PageId page = store->sets[record.page].page[record.class_index];
        *(record.is_open ? &head->open_bytes[record.class_index] : &head->page_bytes[record.class_index]) =
            engine_page_bytes(store->engine, page);
    }
}

static bool begin_save(SessionStore *store, Error *error)
{
    SessionCall *call = store->call;
    if (!take_policy(store, error) || !take_prefix(store, error)) return false;
    fill_head(store);
    uint32_t crc;
    if (!session_head_write(&store->head, call->tokens, &store->head_bytes, &crc, error)) return false;
    store->crc = session_crc_of_crc(0, crc);
    session_disk_create(store->disk, call->session);
    store->phase = WRITE_HEAD;
    return true;
}

static bool write_head(SessionStore *store, Error *error)
{
    (void)error;
    store->n_bytes = store->head_bytes.n;
    session_disk_write(store->disk, store->head_bytes.data, store->head_bytes.n);
    store->phase = WRITE_PAGE;
    return true;
}

/* store->bytes [n], and their CRC behind them. */
static void write_with_crc(SessionStore *store, size_t n, uint32_t crc)
{
    session_put_u32((uint8_t *)store->bytes + n, crc);
    store->n_bytes += n + SESSION_CRC_BYTES;
    session_disk_write(store->disk, store->bytes, n + SESSION_CRC_BYTES);
}

static bool write_page(SessionStore *store, Error *error)
{
    uint32_t n_classes;
    const KvClassInfo *classes = classes_of(store, &n_classes);
    if (!session_next_record(&store->head, classes, &store->record)) {
        release_pages(store);
        if (!reserve_bytes(store, SESSION_CRC_BYTES, error)) return false;
        write_with_crc(store, 0, store->crc);
        store->phase = COMMIT;
        return true;
    }
    PageId page = store->sets[store->record.page].page[store->record.class_index];
    size_t n = (size_t)store->record.bytes;
    uint32_t n_tokens = kv_tokens_of_page(store->head.n_tokens, store->record.page);
    if (!reserve_bytes(store, n + SESSION_CRC_BYTES, error) ||
        !engine_page_read(store->engine, page, n_tokens, store->bytes, error))
        return false;
    uint32_t crc = session_crc(0, store->bytes, n);
    store->crc = session_crc_of_crc(store->crc, crc);
    write_with_crc(store, n, crc);
    return true;
}

static bool commit(SessionStore *store, Error *error)
{
    (void)error;
    session_disk_commit(store->disk);
    store->phase = END_SAVE;
    return true;
}

static bool end_save(SessionStore *store, Error *error)
{
    (void)error;
    succeed(store);
    return true;
}

/* ---- restoring ---- */

static bool in_session(const SessionStore *store, Error *error)
{
    return error_prefix(error, "session '%s'", store->call->session);
}

static bool begin_restore(SessionStore *store, Error *error)
{
    (void)error;
    session_disk_find(store->disk, store->call->session);
    store->phase = READ_FIXED;
    return true;
}

static bool read_fixed(SessionStore *store, Error *error)
{
    store->n_bytes = session_disk_bytes(store->disk);
    if (store->n_bytes < SESSION_FIXED_BYTES) {
        (void)error_set(error, ERR_INVALID, "this is no session file");
        return in_session(store, error);
    }
    if (!buffer_reserve(&store->head_bytes, SESSION_FIXED_BYTES, error)) return false;
    session_disk_read(store->disk, 0, store->head_bytes.data, SESSION_FIXED_BYTES);
    store->phase = READ_HEAD;
    return true;
}

static bool read_head(SessionStore *store, Error *error)
{
    size_t n;
    if (!session_head_bytes((const uint8_t *)store->head_bytes.data, MAX_FILE_TOKENS, &n, error))
        return in_session(store, error);
    if (n > store->n_bytes) {
        (void)error_set(error, ERR_INVALID, "the file ends too early");
        return in_session(store, error);
    }
    if (!buffer_reserve(&store->head_bytes, n, error)) return false;
    store->head_bytes.n = n;
    session_disk_read(store->disk, 0, store->head_bytes.data, n);
    store->phase = TAKE_HEAD;
    return true;
}

/* Is it of this model, and of a policy that is served here in the same way? */
static bool match_head(SessionStore *store, Error *error)
{
    const SessionHead *head = &store->head;
    if (head->model != store->model) return error_set(error, ERR_INVALID, "it was saved with another model");
    uint32_t n_vocab = tok_n_vocab(engine_tokenizer(store->engine));
    for (uint32_t i = 0; i < head->n_tokens; i++)
        if (session_head_token(head, i) >= n_vocab) return error_set(error, ERR_INVALID, "the file's head is damaged");
    if (head->n_tokens > engine_context(store->engine))
        return error_set(error, ERR_TOO_LARGE, "it has %u tokens, but ctx is %u", head->n_tokens,
                         engine_context(store->engine));
    for (store->policy = 0; store->policy < store->n_policies; store->policy++) {
        uint32_t n_classes;
        (void)classes_of(store, &n_classes);
        if (store->policies[store->policy] == head->policy && n_classes == head->n_classes) return true;
    }
    if (!wish_is_plain(&store->call->attention)) {
        if (!take_policy(store, error)) return false;
        if (engine_policy_fingerprint(store->engine, store->policy) == head->policy) return true;
    }
    return error_set(error, ERR_INVALID,
                     "it was saved with another kv_type, on another kind of processor, or with attention '%.*s' of "
                     "other settings",
                     (int)head->n_name, head->name);
}

static bool check_head(SessionStore *store, Error *error)
{
    uint32_t n_classes, crc;
    uint64_t wanted;
    if (!session_head_read((const uint8_t *)store->head_bytes.data, store->head_bytes.n, &store->head, &crc, error) ||
        !match_head(store, error))
        return false;
    store->crc = session_crc_of_crc(0, crc);
    return (session_file_bytes(&store->head, classes_of(store, &n_classes), store->head_bytes.n, &wanted) &&
            wanted == store->n_bytes) ||
           error_set(error, ERR_INVALID, "the file has %llu bytes, which is not what its head says",
                     (unsigned long long)store->n_bytes);
}

static bool take_head(SessionStore *store, Error *error)
{
    if (!check_head(store, error)) return in_session(store, error);
    store->offset = store->head_bytes.n;
    store->phase = CHECK_PAGE;
    return reserve_bytes(store, PIECE_BYTES + SESSION_CRC_BYTES, error);
}

/* The next bytes of the record, at most so many, and its CRC behind the last ones. */
static void read_piece(SessionStore *store, size_t most)
{
    store->n_piece = store->n_left < most ? (size_t)store->n_left : most;
    store->n_left -= store->n_piece;
    size_t n = store->n_piece + (store->n_left ? 0 : SESSION_CRC_BYTES);
    session_disk_read(store->disk, store->offset, store->bytes, n);
    store->offset += n;
}

static bool check_crc(const SessionStore *store, size_t at, uint32_t wanted, Error *error)
{
    if (session_get_u32((const uint8_t *)store->bytes + at) == wanted) return true;
    return error_set(error, ERR_INVALID, "session '%s': the file is damaged before offset %llu", store->call->session,
                     (unsigned long long)store->offset);
}

/* What the disk has read of the record; at its end its CRC is compared. */
static bool take_piece(SessionStore *store, Error *error)
{
    size_t n = store->n_piece;
    store->n_piece = 0;
    if (!n) return true;
    store->record_crc = session_crc(store->record_crc, store->bytes, n);
    if (store->n_left) return true;
    uint32_t crc = store->record_crc;
    store->record_crc = 0;
    store->crc = session_crc_of_crc(store->crc, crc);
    return check_crc(store, n, crc, error);
}

static bool refuse_memory(const SessionStore *store, Error *error)
{
    return error_set(error, ERR_BUSY, "session '%s': too little memory is free for its keys and values",
                     store->call->session);
}

/* Of its pages; an open one of a quantised class has an image beside it, which is what was saved. */
static uint64_t need_bytes(const SessionStore *store)
{
    uint64_t need = 0;
    uint32_t n_classes;
    const KvClassInfo *classes = classes_of(store, &n_classes);
    for (SessionRecord record = {0}; session_next_record(&store->head, classes, &record);)
        need += classes[record.class_index].page_bytes + (record.is_open ? record.bytes : 0);
    return need;
}

/* Pages of the cache give way, but only if that helps. */
static bool check_memory(const SessionStore *store, Error *error)
{
    KvUsage usage = engine_kv_usage(store->engine);
    uint64_t need = need_bytes(store), idle = prefix_cache_idle_bytes(store->cache);
    if (need > prefix_cache_max_idle_bytes(store->cache))
        return error_set_param(error, ERR_TOO_LARGE, "cache_memory",
                               "session '%s' takes %llu bytes, more than cache_memory", store->call->session,
                               (unsigned long long)need);
    return usage.used_bytes + need <= usage.total_bytes + idle || refuse_memory(store, error);
}

static bool check_page(SessionStore *store, Error *error)
{
    uint32_t n_classes;
    if (!take_piece(store, error)) return false;
    if (!store->n_left) {
        if (!session_next_record(&store->head, classes_of(store, &n_classes), &store->record)) {
            session_disk_read(store->disk, store->offset, store->bytes, SESSION_CRC_BYTES);
            store->offset += SESSION_CRC_BYTES;
            store->phase = CHECK_END;
            return true;
        }
        store->n_left = store->record.bytes;
    }
    read_piece(store, PIECE_BYTES);
    return true;
}

static bool check_end(SessionStore *store, Error *error)
{
    if (!check_crc(store, 0, store->crc, error) || !check_memory(store, error)) return false;
    store->record = (SessionRecord){0};
    store->offset = store->head_bytes.n;
    store->phase = LOAD_PAGE;
    return new_sets(store, store->head.n_tokens, error);
}

/* A page, for which cached ones give way. */
static bool take_page(SessionStore *store, PageId *ret_page, Error *error)
{
    uint32_t n_classes;
    uint32_t class_id = classes_of(store, &n_classes)[store->record.class_index].class_id;
    while (!engine_page_new(store->engine, class_id, store->record.is_open, ret_page, error)) {
        if (error->code != ERR_BUSY) return false;
        if (!prefix_cache_evict(store->cache)) return refuse_memory(store, error);
    }
    return true;
}

static bool copy_tokens(SessionStore *store, uint32_t **ret_tokens, Error *error)
{
    uint32_t *tokens = calloc(store->head.n_tokens, sizeof *tokens);
    if (!tokens) return error_set(error, ERR_NO_MEMORY, "no memory for %u tokens", store->head.n_tokens);
    for (uint32_t i = 0; i < store->head.n_tokens; i++) tokens[i] = session_head_token(&store->head, i);
    *ret_tokens = tokens;
    return true;
}

static bool publish(SessionStore *store, Error *error)
{
    uint32_t n, *tokens = NULL;
    PrefixCursor cursor;
    const PageSet *sets;
    PrefixEnd end;
    const PrefixKey key = {store->policy, store->head.salt, store->head.n_salt};
    if (!copy_tokens(store, &tokens, error)) return false;
    if (!prefix_cache_make_room(store->cache, store->n_sets + 1, need_bytes(store))) {
        free(tokens);
        return error_set(error, ERR_BUSY, "session '%s': the prefix cache is full of what is in use",
                         store->call->session);
    }
    prefix_cache_open(store->cache, &key, tokens, 0, &cursor, &sets, &n, &end);
    const PrefixRun run = {.sets = store->sets,
                           .tokens = tokens,
                           .n_tokens = store->head.n_tokens,
                           .n_prefilled = store->head.n_prefilled};
    prefix_cache_finish(store->cache, &cursor, &run);
    free(tokens);
    succeed(store);
    return true;
}

static PageId *page_of_record(SessionStore *store)
{
    return &store->sets[store->record.page].page[store->record.class_index];
}

static bool load_page(SessionStore *store, Error *error)
{
    uint32_t n_classes;
    PageId page;
    bool has_page = store->n_piece > 0;
    /* The file may have changed since it was checked. */
    if (!take_piece(store, error)) return false;
    if (has_page && !engine_page_write(store->engine, *page_of_record(store), store->bytes, error)) return false;
    if (!session_next_record(&store->head, classes_of(store, &n_classes), &store->record)) return publish(store, error);
    if (!take_page(store, &page, error)) return false;
    *page_of_record(store) = page;
    size_t n = engine_page_bytes(store->engine, page);
    if (n != store->record.bytes)
        return error_set(error, ERR_INVALID, "session '%s': its pages have %llu bytes, not %zu", store->call->session,
                         (unsigned long long)store->record.bytes, n);
    if (!reserve_bytes(store, n + SESSION_CRC_BYTES, error)) return false;
    store->n_left = n;
    read_piece(store, n);
    return true;
}

/* ---- steps ---- */

static bool begin_remove(SessionStore *store, Error *error)
{
    (void)error;
    session_disk_remove(store->disk, store->call->session);
    store->phase = END_REMOVE;
    return true;
}

static bool end_remove(SessionStore *store, Error *error)
{
    (void)error;
    finish(store);
    return true;
}

typedef bool Step(SessionStore *store, Error *error);

void session_begin(SessionStore *store, SessionCall *call)
{
    static Step *const begin[] = {
        [SESSION_SAVE] = begin_save, [SESSION_RESTORE] = begin_restore, [SESSION_DELETE] = begin_remove};
    Error error;
    store->call = call;
    store->head = (SessionHead){0};
    store->record = (SessionRecord){0};
    store->n_left = store->n_bytes = 0;
    store->n_piece = 0;
    store->record_crc = 0;
    call->error = (Error){.code = ERR_NONE};
    call->n_moved_tokens = 0;
    call->n_moved_bytes = 0;
    bool ok = store->cache || call->op == SESSION_DELETE ||
              error_set(&error, ERR_UNSUPPORTED, "sessions need a prefix cache: cache is off");
    if (!ok || !begin[call->op](store, &error)) fail(store, &error);
}

/* The result is there, and nothing of the call is left when this says SESSION_OVER. */
static SessionState end(SessionStore *store)
{
    if (session_disk_has_file(store->disk)) {
        session_disk_drop(store->disk);
        return SESSION_WAITING;
    }
    release_bytes(store);
    store->phase = NO_CALL;
    store->call = NULL;
    return SESSION_OVER;
}

SessionState session_step(SessionStore *store)
{
    static Step *const steps[] = {
        [WRITE_HEAD] = write_head, [WRITE_PAGE] = write_page, [COMMIT] = commit,        [END_SAVE] = end_save,
        [READ_FIXED] = read_fixed, [READ_HEAD] = read_head,   [TAKE_HEAD] = take_head,  [CHECK_PAGE] = check_page,
        [CHECK_END] = check_end,   [LOAD_PAGE] = load_page,   [END_REMOVE] = end_remove};
    Error error;
    bool ok = true;
    if (store->phase == NO_CALL) return SESSION_IDLE;
    if (session_disk_is_busy(store->disk) && !session_disk_poll(store->disk, &ok, &error)) return SESSION_WAITING;
    if (store->phase != ENDING && (!ok || !steps[store->phase](store, &error))) fail(store, &error);
    if (session_disk_is_busy(store->disk)) return SESSION_WAITING;
    return store->phase == ENDING ? end(store) : SESSION_MORE;
}
