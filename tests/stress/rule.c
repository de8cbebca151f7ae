/* rule.c - the observer that knows who holds which lock when something is written; see rule.h.
 *
 * Whether this process holds the side lock is read from /proc/self/fdinfo: the kernel's own word,
 * and it names the locks of this process only, where trying to lock could not tell them from
 * another's.
 */
#include "rule.h"

#include "shim_vfs.h"
#include "support.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SLOT_WRITE = 0,   /* WAL_WRITE_LOCK of SQLite's WAL index   */
    SLOT_RECOVER = 2, /* WAL_RECOVER_LOCK                       */
    REPORTS_MAX = 4,
};

static struct {
    pthread_mutex_t mu;
    bool registered;
    /* guarded by mu */
    int writers; /* connections that hold the writer lock; all tests use one database at a time */
    int alone;   /* connections that have the database file exclusively: nobody else has it open */
    rule_report report;
} rule = { .mu = PTHREAD_MUTEX_INITIALIZER };

/* True when this descriptor of ours is the side file and holds an exclusive lock on it. */
static bool descriptor_holds(int directory, const char *number, const struct stat *side)
{
    char buf[1024];
    struct stat st;
    if (fstat(atoi(number), &st) != 0 || st.st_ino != side->st_ino || st.st_dev != side->st_dev) {
        return false;
    }
    const int fd = openat(directory, number, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    const ssize_t n = read(fd, buf, sizeof(buf) - 1);
    (void)close(fd);
    buf[n > 0 ? n : 0] = '\0';
    return strstr(buf, "lock:") != NULL && strstr(buf, " WRITE ") != NULL;
}

static bool side_lock_held(const char *database)
{
    struct stat side;
    char *path = text_format("%s-weir", database);
    bool held = false;
    if (stat(path, &side) == 0) {
        DIR *d = opendir("/proc/self/fdinfo");
        must(d != NULL, "cannot read /proc/self/fdinfo");
        for (const struct dirent *e = readdir(d); e != NULL && !held; e = readdir(d)) {
            held = e->d_name[0] != '.' && descriptor_holds(dirfd(d), e->d_name, &side);
        }
        (void)closedir(d);
    }
    free(path);
    return held;
}

static void breach_locked(const char *what, const char *why)
{
    if (rule.report.breaches < REPORTS_MAX) {
        (void)snprintf(rule.report.first[rule.report.breaches], sizeof(rule.report.first[0]),
                       "%s without %s", what, why);
    }
    rule.report.breaches++;
}

/* `path` without the ending that SQLite gave it: "-wal" or "-journal". Owned. */
static char *database_path(const shim_file *f)
{
    char *path = text_format("%s", f->path);
    if (f->type == SQLITE_OPEN_WAL || f->type == SQLITE_OPEN_MAIN_JOURNAL) {
        char *dash = strrchr(path, '-');
        must(dash != NULL, "a journal without an ending");
        *dash = '\0';
    }
    return path;
}

static void change_check(shim_file *f, const char *verb)
{
    if (f->path == NULL || (f->type != SQLITE_OPEN_MAIN_DB && f->type != SQLITE_OPEN_WAL)) {
        return;
    }
    char *path = database_path(f);
    const bool held = side_lock_held(path);
    free(path);
    pthread_mutex_lock(&rule.mu);
    const char *what = verb;
    bool needs_writer = true;
    if (f->type == SQLITE_OPEN_WAL) {
        rule.report.commits++;
        what = "a commit (a change of the WAL)";
    } else if (f->has_index) {
        rule.report.checkpoints++;
        what = "a checkpoint (a change of the database file)";
    } else {
        rule.report.others++;
        needs_writer = false; /* a rollback journal: the WAL's writer lock means nothing yet */
        what = "a change of the database file before WAL mode";
    }
    if (!held) {
        breach_locked(what, "the side lock");
    }
    if (needs_writer && rule.writers == 0 && rule.alone == 0) {
        breach_locked(what, "the writer's transaction");
    }
    pthread_mutex_unlock(&rule.mu);
}

static void on_writing(shim_file *f, const void *bytes, int len, sqlite3_int64 offset)
{
    (void)bytes;
    (void)len;
    (void)offset;
    change_check(f, "a write");
}

static void on_truncating(shim_file *f, sqlite3_int64 size)
{
    (void)size;
    change_check(f, "a truncation");
}

static void on_index_locked(shim_file *f, int first, int count)
{
    const bool recovers = first <= SLOT_RECOVER && SLOT_RECOVER < first + count;
    bool held = true;
    if (recovers) {
        char *path = database_path(f);
        held = side_lock_held(path);
        free(path);
    }
    pthread_mutex_lock(&rule.mu);
    if (first <= SLOT_WRITE && SLOT_WRITE < first + count) {
        rule.writers++;
    }
    if (recovers) {
        rule.report.recoveries++;
        if (!held) {
            breach_locked("a recovery of the WAL", "the side lock");
        }
    }
    pthread_mutex_unlock(&rule.mu);
}

static void on_index_unlocked(shim_file *f, int first, int count)
{
    (void)f;
    pthread_mutex_lock(&rule.mu);
    if (first <= SLOT_WRITE && SLOT_WRITE < first + count) {
        must(rule.writers > 0, "a writer lock was given back that nobody had");
        rule.writers--;
    }
    pthread_mutex_unlock(&rule.mu);
}

static void on_leveled(shim_file *f, int before)
{
    pthread_mutex_lock(&rule.mu);
    rule.alone += f->level == SQLITE_LOCK_EXCLUSIVE ? 1 : 0;
    rule.alone -= before == SQLITE_LOCK_EXCLUSIVE ? 1 : 0;
    pthread_mutex_unlock(&rule.mu);
}

static void on_closing(shim_file *f)
{
    if (f->level == SQLITE_LOCK_EXCLUSIVE) {
        pthread_mutex_lock(&rule.mu);
        rule.alone--;
        pthread_mutex_unlock(&rule.mu);
    }
    if ((f->index_locks & (1 << SLOT_WRITE)) != 0) {
        on_index_unlocked(f, SLOT_WRITE, 1);
    }
}

static const shim_hooks hooks = {
    .closing = on_closing,
    .writing = on_writing,
    .truncating = on_truncating,
    .index_locked = on_index_locked,
    .index_unlocked = on_index_unlocked,
    .leveled = on_leveled,
};

void rule_register(void)
{
    pthread_mutex_lock(&rule.mu);
    if (!rule.registered) {
        must(shim_vfs_register(RULE_VFS, &hooks) == SQLITE_OK, "cannot register a VFS");
        rule.registered = true;
    }
    pthread_mutex_unlock(&rule.mu);
}

void rule_reset(void)
{
    pthread_mutex_lock(&rule.mu);
    memset(&rule.report, 0, sizeof(rule.report));
    pthread_mutex_unlock(&rule.mu);
}

rule_report rule_now(void)
{
    pthread_mutex_lock(&rule.mu);
    const rule_report out = rule.report;
    pthread_mutex_unlock(&rule.mu);
    return out;
}
