/* sqlite_restore_test.c - a restore or a backup that is killed at any step leaves the old store,
 * the new one, or a store that says that it must be restored again.
 *
 * METHOD  This program has its own rename, unlink, fsync and fdatasync, which count calls and, in a
 * child, kill it before the n-th one. For every n: a store, a child that restores it and is killed,
 * and then a look at what is left. A restore after that always succeeds.
 */

#include "api/api.h"
#include "store/store_backup.h"
#include "support.h"

#include <fcntl.h>
#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { SAVED = 3, ADDED = 2, STEPS_MAX = 400 };

static int steps_left = -1; /* -1: nobody is killed */

static void step(void)
{
    if (steps_left > 0 && --steps_left == 0) {
        (void)kill(getpid(), SIGKILL);
    }
}

int rename(const char *from, const char *to)
{
    step();
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    step();
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

/* Every restore is one of another second. */
time_t time(time_t *out)
{
    static time_t now = 1800000000;
    now += getpid() % 1000 + 1;
    if (out != NULL) {
        *out = now;
    }
    return now;
}

int unlink(const char *path)
{
    step();
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int fsync(int fd)
{
    step();
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    step();
    return (int)syscall(SYS_fdatasync, fd);
}

static int event_count(void *ctx, const weir_event *event)
{
    (void)event;
    (*(int64_t *)ctx)++;
    return 0;
}

/* How many events; -1: it does not open, with the reason in err. */
static int64_t count_of(const char *url, weir_error *err)
{
    int64_t count = 0;
    weir *w = NULL;
    const weir_options o = { WEIR_OPTIONS_INIT, .flags = WEIR_OPEN_EXISTING, .store_url = url };
    if (weir_open(&o, &w, err) != WEIR_OK) {
        return -1;
    }
    assert_int_equal(weir_log(w, NULL, event_count, &count, err), WEIR_OK);
    weir_close(w);
    return count;
}

static void append_n(weir *w, int n)
{
    weir_error err;
    for (int i = 0; i < n; i++) {
        must(append_one(w, "s-1", WEIR_EXPECT_ANY, 0, "{}", NULL, NULL, &err) == WEIR_OK,
             err.message);
    }
}

typedef struct place {
    char *directory, *path, *url, *backup;
} place;

/* A store with SAVED + ADDED events, and a backup with SAVED. */
static place place_make(void)
{
    weir_error err;
    place p = { .directory = directory_make("restore") };
    p.path = text_format("%s/s.db", p.directory);
    p.url = text_format("sqlite:%s", p.path);
    p.backup = text_format("%s/good.db", p.directory);
    weir *w = store_open(p.url, 0);
    append_n(w, SAVED);
    must(weir_backup(w, p.backup, 0, &err) == WEIR_OK, err.message);
    append_n(w, ADDED);
    weir_close(w);
    return p;
}

static void place_remove(place *p)
{
    directory_remove(p->directory);
    free(p->path);
    free(p->url);
    free(p->backup);
}

static weir_status restore(const place *p, weir_error *err)
{
    char *kept = NULL;
    store_url url = { 0 };
    weir_status status = weir__url_parse(&url, p->url, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_restore(&url.options, p->backup, &kept, NULL, NULL, err);
    }
    weir__free(kept);
    weir__url_free(&url);
    return status;
}

static weir_status backup_again(const place *p, weir_error *err)
{
    weir *w = store_open(p->url, WEIR_OPEN_EXISTING);
    const weir_status status = (weir_status)weir_backup(w, p->backup, WEIR_BACKUP_REPLACE, err);
    weir_close(w);
    return status;
}

/* Runs it in a child that is killed before its n-th step. False: it ended before that. */
static bool killed_at(const place *p, int n, weir_status (*fn)(const place *p, weir_error *err))
{
    int status = -1;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        weir_error err;
        steps_left = n;
        _exit(fn(p, &err) == WEIR_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
}

static void C12_a_restore_that_is_killed_at_any_step_can_be_repeated(void **state)
{
    (void)state;
    int old = 0, refused = 0, restored = 0;
    bool killed = true;
    for (int n = 1; killed && n < STEPS_MAX; n++) {
        weir_error err;
        place p = place_make();
        killed = killed_at(&p, n, restore);
        const int64_t count = count_of(p.url, &err);
        if (count < 0) {
            assert_int_equal(err.code, WEIR_ECORRUPT);
            assert_non_null(strstr(err.message, "interrupted"));
            refused++;
        } else {
            assert_true(count == SAVED || count == SAVED + ADDED);
            old += count == SAVED + ADDED;
            restored += count == SAVED;
        }
        if (restore(&p, &err) != WEIR_OK) {
            fail_msg("step %d: %s", n, err.message);
        }
        assert_int_equal(count_of(p.url, &err), SAVED);
        place_remove(&p);
    }
    assert_false(killed);
    print_message("# killed before: %d, in between: %d, after: %d\n", old, refused, restored);
    assert_true(old > 0 && refused > 0 && restored > 0);
}

/* Adds events that stay in the WAL, because who has written them is killed. */
static void leave_wal(const place *p)
{
    int status = -1;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        append_n(store_open(p->url, WEIR_OPEN_EXISTING), ADDED);
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

/* The most events that a store has that was kept, restored to another place. */
static int64_t kept_most(const place *p)
{
    int64_t most = -1;
    glob_t found = { 0 };
    char *pattern = text_format("%s.before-*Z*", p->path);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        weir_error err;
        place other = { .backup = found.gl_pathv[i] };
        const char *end = strrchr(other.backup, '-');
        if (strcmp(end, "-wal") == 0 || strcmp(end, "-shm") == 0) {
            continue;
        }
        other.url = text_format("sqlite:%s/undone-%zu.db", p->directory, i);
        must(restore(&other, &err) == WEIR_OK, err.message);
        const int64_t count = count_of(other.url, &err);
        most = count > most ? count : most;
        free(other.url);
    }
    globfree(&found);
    free(pattern);
    return most;
}

static void C12_a_restore_that_was_killed_keeps_all_files_together(void **state)
{
    (void)state;
    bool killed = true;
    for (int n = 1; killed && n < STEPS_MAX; n++) {
        weir_error err;
        place p = place_make();
        leave_wal(&p);
        killed = killed_at(&p, n, restore);
        if (restore(&p, &err) != WEIR_OK) {
            fail_msg("step %d: %s", n, err.message);
        }
        assert_int_equal(count_of(p.url, &err), SAVED);
        const int64_t most = kept_most(&p);
        if (most != SAVED + ADDED + ADDED) {
            fail_msg("step %d: %d events are left of what was there", n, (int)most);
        }
        place_remove(&p);
    }
    assert_false(killed);
}

static void a_backup_that_is_killed_at_any_step_is_there_whole_or_not_at_all(void **state)
{
    (void)state;
    bool killed = true;
    int before = 0, after = 0;
    for (int n = 1; killed && n < STEPS_MAX; n++) {
        weir_error err;
        place p = place_make();
        killed = killed_at(&p, n, backup_again);
        char *url = text_format("sqlite:%s", p.backup);
        const int64_t count = count_of(url, &err);
        assert_true(count == SAVED || count == SAVED + ADDED);
        before += count == SAVED;
        after += count == SAVED + ADDED;
        assert_int_equal(count_of(p.url, &err), SAVED + ADDED);
        free(url);
        place_remove(&p);
    }
    assert_false(killed);
    assert_true(before > 0 && after > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C12_a_restore_that_is_killed_at_any_step_can_be_repeated),
        cmocka_unit_test(C12_a_restore_that_was_killed_keeps_all_files_together),
        cmocka_unit_test(a_backup_that_is_killed_at_any_step_is_there_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
