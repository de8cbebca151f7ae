/* sync_failure_test.c - a disk that fails to sync: what was not acknowledged, and what is said of
 * it.
 *
 * METHOD  A VFS fails the sync of the WAL inside a commit. The files are then copied, as a crash at
 * that moment would leave them, and the copy is opened: the commit may be there, whole. So the
 * append must not have been reported as refused, but as unknown, and must not have been repeated
 * without a key.
 */
#include "shim_vfs.h"
#include "support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static _Atomic int failures_left; /* how many syncs of the WAL fail from now on */

static int fail_sync(shim_file *f)
{
    if ((f->type & SQLITE_OPEN_WAL) == 0 || atomic_load(&failures_left) == 0) {
        return SQLITE_OK;
    }
    atomic_fetch_sub(&failures_left, 1);
    return SQLITE_IOERR_FSYNC;
}

static const shim_hooks hooks = { .syncing = fail_sync };

typedef struct place {
    char *directory, *copies, *url;
} place;

static place place_make(void)
{
    place p = { .directory = directory_make("sync"), .copies = directory_make("sync-copy") };
    p.url = text_format("sqlite:%s/s.db?vfs=failing-sync", p.directory);
    return p;
}

static void place_remove(place *p)
{
    directory_remove(p->directory);
    directory_remove(p->copies);
    free(p->url);
}

/* How many events the store has, as a crash at this moment would leave it. */
static int64_t head_after_crash(const place *p)
{
    int64_t head = -1;
    char *command =
        text_format("cp %s/s.db %s/s.db-wal %s/", p->directory, p->directory, p->copies);
    char *url = text_format("sqlite:%s/s.db", p->copies);
    directory_empty(p->copies);
    assert_int_equal(system(command), 0);
    weir *w = store_open(url, WEIR_OPEN_EXISTING);
    assert_int_equal(weir_positions(w, &head, NULL, NULL), WEIR_OK);
    weir_close(w);
    free(command);
    free(url);
    return head;
}

static int32_t append_keyed(weir *w, const char *key, weir_error *err)
{
    const weir_new_event e = { WEIR_NEW_EVENT_INIT, .stream = text("s"), .name = text("Kept") };
    const weir_new_event *events[] = { &e };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1,
                                    .key = text(key) };
    return weir_append(w, &r, NULL, err);
}

static void C14_a_commit_that_may_survive_a_crash_is_not_called_refused(void **state)
{
    (void)state;
    place p = place_make();
    weir_error err = { 0 };
    weir *w = store_open(p.url, 0);
    assert_int_equal(append_one(w, "s", WEIR_EXPECT_ANY, 0, "{}", NULL, NULL, &err), WEIR_OK);
    atomic_store(&failures_left, 1);
    assert_int_equal(append_one(w, "s", WEIR_EXPECT_ANY, 0, "{}", NULL, NULL, &err), WEIR_EUNKNOWN);
    assert_non_null(strstr(err.message, "may or may not"));
    assert_int_equal(head_after_crash(&p), 2); /* the reason why it is not WEIR_EIO */

    int64_t head = 0; /* those who go on do without it */
    assert_int_equal(weir_positions(w, &head, NULL, NULL), WEIR_OK);
    assert_int_equal(head, 1);
    assert_int_equal(append_one(w, "s", WEIR_EXPECT_EXACT, 0, "{}", NULL, NULL, &err), WEIR_OK);
    assert_int_equal(head_after_crash(&p), 2);
    weir_close(w);
    place_remove(&p);
}

static void C14_a_key_resolves_what_is_not_known(void **state)
{
    (void)state;
    place p = place_make();
    weir_error err = { 0 };
    weir *w = store_open(p.url, 0);
    assert_int_equal(append_one(w, "s", WEIR_EXPECT_ANY, 0, "{}", NULL, NULL, &err), WEIR_OK);
    atomic_store(&failures_left, 1);
    assert_int_equal(append_keyed(w, "k", &err), WEIR_OK);
    assert_int_equal(head_after_crash(&p), 2); /* once */
    atomic_store(&failures_left, 2);           /* and when it fails again, it is unknown again */
    assert_int_equal(append_keyed(w, "l", &err), WEIR_EUNKNOWN);
    atomic_store(&failures_left, 0);
    assert_int_equal(append_keyed(w, "l", &err), WEIR_OK);
    assert_int_equal(head_after_crash(&p), 3);
    weir_close(w);
    place_remove(&p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C14_a_commit_that_may_survive_a_crash_is_not_called_refused),
        cmocka_unit_test(C14_a_key_resolves_what_is_not_known),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    if (shim_vfs_register("failing-sync", &hooks) != SQLITE_OK) {
        return 1;
    }
    return cmocka_run_group_tests_name("sync_failure", tests, NULL, NULL);
}
