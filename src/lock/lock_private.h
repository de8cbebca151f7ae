/* lock_private.h - what the files of lock/ share: the vtable behind a lock, its number, its tag. */
#ifndef WEIR_LOCK_LOCK_PRIVATE_H
#define WEIR_LOCK_LOCK_PRIVATE_H

#include "lock/lock.h"
#include "store/url.h"

typedef struct lock_ops {
    int (*hold_fd)(const named_lock *l);
    int (*poll_fd)(const named_lock *l);
    /* Moves known_us and due_us. */
    weir_status (*watch)(named_lock *l, int64_t now_us, weir_error *err);
    void (*release)(named_lock *l); /* frees it */
} lock_ops;

/* The first member of every kind's own. */
struct named_lock {
    const lock_ops *ops;
    lock_kind kind;
    bool left; /* weir__lock_leave: others hold it too */
    int64_t fence, token;
    int64_t check_us, grace_us;
    int64_t known_us, due_us;
};

/* How often it is looked: so that three answers may fail to come before it counts as lost. */
enum { LOCK_CHECKS = 4 };

/* url: moved on success. */
weir_status weir__lock_postgres(named_lock **out, store_url *url, const lock_request *q,
                                weir_error *err);
weir_status weir__lock_file(named_lock **out, store_url *url, const lock_request *q,
                            weir_error *err);
weir_status weir__lock_postgres_list(const store_url *url, lock_list *list, weir_error *err);
weir_status weir__lock_file_list(const store_url *url, lock_list *list, weir_error *err);

/* ---- lock.c -------------------------------------------------------------------------------- */

/* The number of a name in a schema: the first 64 bits of a SHA-256 over both, below a word of our
 * own. Two names can have one number, as with any function from names to 64 bits; nobody finds two
 * such names by chance (10^9 names: 1 in 37) or meets those of another program. Its locks
 * would then exclude each other, which is safe. */
int64_t weir__lock_key(weir_str schema, weir_str name);
/* EHELD in the words of store/locks.h; since_us 0: not known. */
weir_status weir__lock_fail_held(weir_str name, weir_str holder, int64_t since_us, weir_error *err);
/* ELOST. */
weir_status weir__lock_fail_lost(const char *why, weir_error *err);
/* Opens the store of a URL if there is one; *out NULL: there is none. flags: WEIR_OPEN_*. */
weir_status weir__lock_store(const store_url *url, uint32_t flags, weir_store **out,
                             weir_error *err);
/* Adds a row, its texts copied. *capacity: of list->rows. */
weir_status weir__lock_list_add(lock_list *list, size_t *capacity, const lock_row *row,
                                weir_error *err);
/* Fences, names and leases that the store knows of: key_of gives the number by which a row is known
 * when its name is not. */
weir_status weir__lock_list_store(lock_list *list, size_t *capacity, weir_store *store, bool leases,
                                  weir_error *err);
int64_t weir__lock_least(int64_t a, int64_t b);

/* ---- lock_tag.c ---------------------------------------------------------------------------- */

/* Who it is, in ASCII without white space and without what would end a comment of SQL:
 * since=1789999999000000 by=root@web-1 name=a%20name. */
typedef struct lock_tag {
    int64_t since_us;  /* 0: not said */
    weir_str by, name; /* empty: not said, or cut off */
} lock_tag;

bool weir__lock_tag_add(weir_buffer *out, const lock_tag *tag);
/* From a text that has a tag somewhere and may be cut at any byte. Texts are in the arena. false:
 * out of memory. */
bool weir__lock_tag_read(weir_str text, weir_arena *arena, lock_tag *tag);

#endif
