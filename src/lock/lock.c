/* lock.c - see lock.h: which kind of lock a store has, and what all kinds share. */
#include "lock/lock.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/str.h"
#include "lock/lock_private.h"
#include "store/request.h"

#include <poll.h>
#include <stdlib.h>

int64_t weir__lock_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t weir__lock_key(weir_str schema, weir_str name)
{
    static const char word[] = "weir lock 1"; /* with its NUL: nothing else begins like that */
    uint8_t digest[WEIR_SHA256_BYTES];
    weir_sha256 hash;
    uint64_t key = 0;

    weir__sha256_init(&hash);
    weir__sha256_add(&hash, word, sizeof word);
    weir__sha256_add(&hash, schema.len == 0 ? "weir" : schema.ptr,
                     schema.len == 0 ? 4 : schema.len);
    weir__sha256_add(&hash, "", 1);
    weir__sha256_add(&hash, name.ptr, name.len);
    weir__sha256_end(&hash, digest);
    for (size_t i = 0; i < sizeof key; i++) {
        key = key << 8 | digest[i];
    }
    int64_t out;
    memcpy(&out, &key, sizeof out);
    return out;
}

const char *weir__lock_kind_text(lock_kind kind)
{
    switch (kind) {
    case LOCK_SESSION:
        return "session";
    case LOCK_LEASE:
        return "lease";
    case LOCK_FILE:
        return "file";
    case LOCK_MEMORY:
        break;
    }
    return "memory";
}

weir_status weir__lock_fail_held(weir_str name, weir_str holder, int64_t since_us, weir_error *err)
{
    const store_lock other = { .name = name, .holder = holder, .since_us = since_us };
    return since_us != 0 ? weir__lock_held(&other, err)
                         : weir__fail(err, WEIR_EHELD, "\"%.*s\" is held by %.*s", (int)name.len,
                                      name.ptr, (int)holder.len, holder.ptr);
}

weir_status weir__lock_fail_lost(const char *why, weir_error *err)
{
    return weir__fail(err, WEIR_ELOST, "%s", why);
}

weir_status weir__lock_store(const store_url *url, uint32_t flags, weir_store **out,
                             weir_error *err)
{
    store_url existing = *url; /* borrows from it */
    existing.options.open_flags = flags;
    *out = NULL;
    const weir_status status = weir__store_open(out, &existing, err);
    /* EINVAL: a database of somebody else's, which is as good as none. */
    return status == WEIR_ENOTFOUND || (status == WEIR_EINVAL && strcmp(url->scheme, "sqlite") == 0)
               ? WEIR_OK
               : status;
}

/* ---- memory -------------------------------------------------------------------------------- */

static int none_fd(const named_lock *l)
{
    (void)l;
    return -1;
}

static weir_status memory_watch(named_lock *l, int64_t now_us, weir_error *err)
{
    (void)now_us;
    (void)err;
    l->known_us = INT64_MAX;
    l->due_us = INT64_MAX;
    return WEIR_OK;
}

static void memory_release(named_lock *l)
{
    weir__free(l);
}

static const lock_ops memory_ops = {
    .hold_fd = none_fd, .poll_fd = none_fd, .watch = memory_watch, .release = memory_release
};

/* A store in memory is this process's own and ends with it: nobody can hold anything in it. */
static weir_status memory_acquire(named_lock **out, const lock_request *q, weir_error *err)
{
    named_lock *l = weir__calloc(1, sizeof *l);
    if (l == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a lock");
    }
    if (q->note_cb != NULL) {
        q->note_cb(q->note_ctx, "a lock in memory: is known to nobody but this process");
    }
    *l = (named_lock){ .ops = &memory_ops,
                       .kind = LOCK_MEMORY,
                       .fence = 1,
                       .known_us = INT64_MAX,
                       .due_us = INT64_MAX };
    *out = l;
    return WEIR_OK;
}

/* ---- acquiring, watching, releasing -------------------------------------------------------- */

weir_status weir__lock_acquire(named_lock **out, const lock_request *q, weir_error *err)
{
    store_url url = { 0 };
    weir_status status = weir__name_check("lock name", q->name, true, err);
    if (status == WEIR_OK) {
        status = weir__url_parse(&url, q->url, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (strcmp(url.scheme, "postgres") == 0) {
        status = weir__lock_postgres(out, &url, q, err);
    } else if (strcmp(url.scheme, "sqlite") == 0) {
        status = weir__lock_file(out, &url, q, err);
    } else {
        status = memory_acquire(out, q, err);
    }
    weir__url_free(&url); /* moved: a no-op */
    return status;
}

void weir__lock_release(named_lock *l)
{
    if (l != NULL) {
        l->ops->release(l);
    }
}

void weir__lock_leave(named_lock *l)
{
    l->left = true;
    l->ops->release(l);
}

lock_kind weir__lock_kind(const named_lock *l)
{
    return l->kind;
}

int64_t weir__lock_fence(const named_lock *l)
{
    return l->fence;
}

int weir__lock_hold_fd(const named_lock *l)
{
    return l->ops->hold_fd(l);
}

int weir__lock_poll_fd(const named_lock *l)
{
    return l->ops->poll_fd(l);
}

int64_t weir__lock_due_us(const named_lock *l)
{
    return l->due_us;
}

weir_status weir__lock_watch(named_lock *l, int64_t *known_us, weir_error *err)
{
    const weir_status status = l->ops->watch(l, weir__clock_boot(), err);
    *known_us = l->known_us;
    return status;
}

weir_status weir__lock_prove(named_lock *l, int64_t *known_us, weir_error *err)
{
    const int64_t start_us = weir__clock_boot();
    weir_status status = WEIR_OK;
    l->known_us = start_us - 1; /* counted from here, and proved by what is newer */
    l->due_us = start_us;
    while (status == WEIR_OK && l->known_us < start_us) {
        status = weir__lock_watch(l, known_us, err);
        if (status == WEIR_OK && l->known_us < start_us) {
            struct pollfd fd = { .fd = weir__lock_poll_fd(l), .events = POLLIN };
            const int64_t left_us = l->due_us - weir__clock_boot();
            (void)poll(&fd, 1, left_us <= 0 ? 0 : (int)(left_us / 1000) + 1);
        }
    }
    return status;
}

/* ---- who holds what ------------------------------------------------------------------------ */

static weir_str text_copied(weir_arena *arena, weir_str text, bool *ok)
{
    if (text.ptr == NULL) {
        return text;
    }
    const weir_str copy = { .ptr = weir__arena_copy(arena, text.ptr, text.len), .len = text.len };
    *ok = *ok && copy.ptr != NULL;
    return copy;
}

weir_status weir__lock_list_add(lock_list *list, size_t *capacity, const lock_row *row,
                                weir_error *err)
{
    bool ok = true;
    if (list->rows_count == *capacity) {
        const size_t more = *capacity == 0 ? 16 : 2 * *capacity;
        lock_row *rows = weir__realloc(list->rows, more * sizeof *rows);
        if (rows == NULL) {
            return weir__fail(err, WEIR_ENOMEM, "could not allocate the list of locks");
        }
        list->rows = rows;
        *capacity = more;
    }
    lock_row *to = &list->rows[list->rows_count];
    *to = *row;
    to->name = text_copied(&list->arena, row->name, &ok);
    to->holder = text_copied(&list->arena, row->holder, &ok);
    if (!ok) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the list of locks");
    }
    list->rows_count++;
    return WEIR_OK;
}

static lock_row *holder_of(lock_list *list, size_t count, weir_str name)
{
    for (size_t i = 0; i < count; i++) {
        if (!list->rows[i].waiting && weir__str_equal(list->rows[i].name, name)) {
            return &list->rows[i];
        }
    }
    return NULL;
}

/* A note says nothing unless the lock itself is there. */
weir_status weir__lock_list_store(lock_list *list, size_t *capacity, weir_store *store, bool leases,
                                  weir_error *err)
{
    store_lock_list known = { 0 };
    const size_t count = list->rows_count;
    weir_status status = store->locks->list(store, &known, err);
    for (size_t i = 0; i < known.locks_count && status == WEIR_OK; i++) {
        const store_lock *k = &known.locks[i];
        lock_row *held = holder_of(list, count, k->name);
        if (held != NULL) {
            held->fence = k->fence;
        } else if (leases && k->until_us != 0) {
            const lock_row row = { .name = k->name,
                                   .holder = k->holder,
                                   .kind = LOCK_LEASE,
                                   .since_us = k->since_us,
                                   .until_us = k->until_us,
                                   .fence = k->fence };
            status = weir__lock_list_add(list, capacity, &row, err);
        }
    }
    weir__arena_free(&known.arena);
    return status;
}

static int lock_compare(const void *a, const void *b)
{
    const lock_row *x = a, *y = b;
    const int by_name = weir__str_compare(x->name, y->name);
    if (by_name != 0) {
        return by_name;
    }
    if (x->waiting != y->waiting) {
        return x->waiting ? 1 : -1;
    }
    return x->since_us < y->since_us ? -1 : x->since_us > y->since_us;
}

weir_status weir__lock_list(const char *url, lock_list *list, weir_error *err)
{
    store_url parsed = { 0 };
    *list = (lock_list){ 0 };
    weir_status status = weir__url_parse(&parsed, url, err);
    if (status == WEIR_OK && strcmp(parsed.scheme, "postgres") == 0) {
        status = weir__lock_postgres_list(&parsed, list, err);
    } else if (status == WEIR_OK && strcmp(parsed.scheme, "sqlite") == 0) {
        status = weir__lock_file_list(&parsed, list, err);
    }
    weir__url_free(&parsed);
    if (status == WEIR_OK && list->rows_count > 1) {
        qsort(list->rows, list->rows_count, sizeof *list->rows, lock_compare);
    }
    return status;
}

void weir__lock_list_free(lock_list *list)
{
    weir__free(list->rows);
    weir__arena_free(&list->arena);
    *list = (lock_list){ 0 };
}
