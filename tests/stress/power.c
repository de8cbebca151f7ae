/* power.c - the record of file operations and its player; see power.h.
 *
 * A file is an inode with a name; a name that is deleted and created again is another inode. The
 * record is one array of steps, guarded by `mu`; after power_end it does not change and players
 * read it without locking. Contents are kept in memory: records are a few megabytes.
 */
#include "power.h"

#include "shim_vfs.h"
#include "support.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SECTOR_BYTES = 512,
    INODES_MAX = 64,
    NAME_BYTES_MAX = 64,
};

typedef struct step {
    power_kind kind;
    int inode;
    int64_t offset; /* of a write; the new size of a truncation */
    size_t len;
    unsigned char *data; /* owned */
} step;

static struct {
    pthread_mutex_t mu;
    bool registered, recording;
    step *steps; /* owned */
    size_t count, capacity;
    char names[INODES_MAX][NAME_BYTES_MAX]; /* of each inode */
    bool linked[INODES_MAX];                /* the name leads to this inode now */
    int inodes;
} record = { .mu = PTHREAD_MUTEX_INITIALIZER };

/* ---- recording ---------------------------------------------------------------------------- */

static step *step_add_locked(power_kind kind, int inode)
{
    if (record.count == record.capacity) {
        record.capacity = record.capacity == 0 ? 1024 : record.capacity * 2;
        record.steps = must_realloc(record.steps, record.capacity * sizeof(step));
    }
    step *s = &record.steps[record.count++];
    *s = (step){ .kind = kind, .inode = inode };
    return s;
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static int inode_find_locked(const char *name)
{
    for (int i = 0; i < record.inodes; i++) {
        if (record.linked[i] && strcmp(record.names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

static bool is_recorded(const shim_file *f)
{
    return f->path != NULL &&
           (f->type & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL)) != 0;
}

static void on_opened(shim_file *f)
{
    if (!is_recorded(f)) {
        return;
    }
    pthread_mutex_lock(&record.mu);
    must(record.recording, "a file is opened while nothing is recorded");
    f->number = inode_find_locked(file_name(f->path));
    if (f->number < 0) {
        /* Whoever sees the file first may not be the one who created it: several connections open
         * at once. Its entry is recorded all the same. */
        must(record.inodes < INODES_MAX, "too many files in one record");
        must(strlen(file_name(f->path)) < NAME_BYTES_MAX, "a file name is too long");
        f->number = record.inodes++;
        strncpy(record.names[f->number], file_name(f->path), NAME_BYTES_MAX - 1);
        record.linked[f->number] = true;
        (void)step_add_locked(POWER_CREATE, f->number);
    }
    /* As os_unix.c does: the first sync of a new journal or WAL syncs the directory. */
    f->flag = f->created && f->type != SQLITE_OPEN_MAIN_DB;
    pthread_mutex_unlock(&record.mu);
}

static void on_writing(shim_file *f, const void *bytes, int len, sqlite3_int64 offset)
{
    if (!is_recorded(f)) {
        return;
    }
    unsigned char *copy = must_realloc(NULL, (size_t)len);
    memcpy(copy, bytes, (size_t)len);
    pthread_mutex_lock(&record.mu);
    step *s = step_add_locked(POWER_WRITE, f->number);
    s->offset = offset;
    s->len = (size_t)len;
    s->data = copy;
    pthread_mutex_unlock(&record.mu);
}

static void on_truncating(shim_file *f, sqlite3_int64 size)
{
    if (!is_recorded(f)) {
        return;
    }
    pthread_mutex_lock(&record.mu);
    step_add_locked(POWER_TRUNCATE, f->number)->offset = size;
    pthread_mutex_unlock(&record.mu);
}

static void on_synced(shim_file *f)
{
    if (!is_recorded(f)) {
        return;
    }
    pthread_mutex_lock(&record.mu);
    (void)step_add_locked(POWER_SYNC, f->number);
    if (f->flag) {
        (void)step_add_locked(POWER_SYNC_DIRECTORY, -1);
        f->flag = false;
    }
    pthread_mutex_unlock(&record.mu);
}

static void on_deleted(const char *path, bool directory_synced)
{
    pthread_mutex_lock(&record.mu);
    const int inode = inode_find_locked(file_name(path));
    if (inode >= 0) {
        record.linked[inode] = false;
        (void)step_add_locked(POWER_DELETE, inode);
        if (directory_synced) {
            (void)step_add_locked(POWER_SYNC_DIRECTORY, -1);
        }
    }
    pthread_mutex_unlock(&record.mu);
}

static const shim_hooks hooks = {
    .opened = on_opened,
    .writing = on_writing,
    .truncating = on_truncating,
    .synced = on_synced,
    .deleted = on_deleted,
    .skip_sync = true,
};

void power_begin(void)
{
    pthread_mutex_lock(&record.mu);
    must(!record.recording, "one record at a time");
    if (!record.registered) {
        must(shim_vfs_register(POWER_VFS, &hooks) == SQLITE_OK, "cannot register a VFS");
        record.registered = true;
    }
    for (size_t i = 0; i < record.count; i++) {
        free(record.steps[i].data);
    }
    record.count = 0;
    record.inodes = 0;
    record.recording = true;
    pthread_mutex_unlock(&record.mu);
}

size_t power_now(void)
{
    pthread_mutex_lock(&record.mu);
    const size_t count = record.count;
    pthread_mutex_unlock(&record.mu);
    return count;
}

size_t power_end(void)
{
    pthread_mutex_lock(&record.mu);
    record.recording = false;
    const size_t count = record.count;
    pthread_mutex_unlock(&record.mu);
    return count;
}

power_kind power_step_kind(size_t number)
{
    must(number < record.count, "no such step");
    return record.steps[number].kind;
}

/* ---- playing ------------------------------------------------------------------------------ */

typedef struct image {
    unsigned char *bytes; /* owned */
    size_t size, capacity;
} image;

struct power_player {
    size_t next;                     /* the step that is played next */
    image files[INODES_MAX];         /* what is synced of each inode */
    bool linked[INODES_MAX];         /* its entry is synced */
    size_t pending_from[INODES_MAX]; /* steps of an inode from here on are not synced */
    size_t directory_from;           /* entries changed from here on are not synced */
};

static void image_resize(image *m, size_t size)
{
    if (size > m->capacity) {
        m->capacity = size * 2;
        m->bytes = must_realloc(m->bytes, m->capacity);
    }
    if (size > m->size) {
        memset(m->bytes + m->size, 0, size - m->size);
    }
    m->size = size;
}

static void image_write(image *m, size_t offset, const unsigned char *data, size_t len)
{
    if (offset + len > m->size) {
        image_resize(m, offset + len);
    }
    memcpy(m->bytes + offset, data, len);
}

/* Applies the contents steps [from, to) of one inode. `share` of 256 is kept, 256: everything. */
static void image_apply(image *m, int inode, size_t from, size_t to, uint32_t share, rng *random)
{
    for (size_t i = from; i < to; i++) {
        const step *s = &record.steps[i];
        if (s->inode != inode) {
            continue;
        }
        if (s->kind == POWER_TRUNCATE && rng_below(random, 256) < share) {
            image_resize(m, (size_t)s->offset);
        }
        if (s->kind != POWER_WRITE) {
            continue;
        }
        for (size_t done = 0; done < s->len;) {
            const size_t at = (size_t)s->offset + done;
            size_t len = SECTOR_BYTES - at % SECTOR_BYTES;
            len = len < s->len - done ? len : s->len - done;
            if (rng_below(random, 256) < share) {
                image_write(m, at, s->data + done, len);
            }
            done += len;
        }
    }
}

power_player *power_player_open(void)
{
    power_player *p = must_realloc(NULL, sizeof(*p));
    memset(p, 0, sizeof(*p));
    return p;
}

void power_player_step(power_player *p)
{
    must(p->next < record.count, "the record is at its end");
    const size_t now = p->next++;
    const step *s = &record.steps[now];
    rng unused = { 1 };
    if (s->kind == POWER_SYNC) {
        image_apply(&p->files[s->inode], s->inode, p->pending_from[s->inode], now, 256, &unused);
        p->pending_from[s->inode] = now + 1;
    } else if (s->kind == POWER_SYNC_DIRECTORY) {
        for (size_t i = p->directory_from; i < now; i++) {
            if (record.steps[i].kind == POWER_CREATE || record.steps[i].kind == POWER_DELETE) {
                p->linked[record.steps[i].inode] = record.steps[i].kind == POWER_CREATE;
            }
        }
        p->directory_from = now + 1;
    }
}

void power_player_cut(const power_player *p, power_loss loss, uint64_t seed, const char *directory)
{
    rng random = { seed * 2 + 1 };
    bool linked[INODES_MAX];
    /* A share per cut, not one for all: nearly everything and nearly nothing are the nasty ones. */
    uint32_t share = loss == POWER_LOSE_ALL ? 0 : 256;
    if (loss == POWER_LOSE_SOME) {
        share = rng_below(&random, 255) + 1;
    }
    memcpy(linked, p->linked, sizeof(linked));
    for (size_t i = p->directory_from; i < p->next; i++) {
        const step *s = &record.steps[i];
        if ((s->kind == POWER_CREATE || s->kind == POWER_DELETE) &&
            rng_below(&random, 256) < share) {
            linked[s->inode] = s->kind == POWER_CREATE;
        }
    }
    for (int i = 0; i < INODES_MAX; i++) {
        if (!linked[i]) {
            continue;
        }
        image m = { 0 };
        if (p->files[i].size > 0) {
            image_write(&m, 0, p->files[i].bytes, p->files[i].size);
        }
        image_apply(&m, i, p->pending_from[i], p->next, share, &random);
        char *path = text_format("%s/%s", directory, record.names[i]);
        file_write_all(path, m.bytes, m.size);
        free(path);
        free(m.bytes);
    }
}

void power_player_close(power_player *p)
{
    for (int i = 0; i < INODES_MAX; i++) {
        free(p->files[i].bytes);
    }
    free(p);
}
