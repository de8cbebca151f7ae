/* disk_full_test.c - a full disk refuses appends and damages nothing.
 *
 * METHOD  A real file system of a few megabytes (tmpfs, in a mount namespace of this process
 * alone, so that nothing is left behind) is filled by appending, with one caller and with many.
 * The refused append must say that the disk is full; what was acknowledged must be there, and
 * nothing else; and as soon as there is room the same handle goes on. Mounting needs root: without
 * it the test fails and says so.
 */
#include "support.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    DISK_BYTES = 4 * 1024 * 1024,
    BALLAST_BYTES = 1024 * 1024,
    THREADS = 8,
    APPENDS_MAX = 100000, /* a disk that takes so many is not full for another reason */
};

typedef struct disk {
    char *directory, *path, *ballast;
} disk;

static disk disk_make(void)
{
    static bool own_namespace;
    disk d = { .directory = directory_make("disk") };
    if (!own_namespace) {
        /* EINVAL: the root is not a mount point, as in a chroot. What is mounted may then be seen
         * by others until disk_remove takes it away. */
        if (unshare(CLONE_NEWNS) != 0 ||
            (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 && errno != EINVAL)) {
            fail_msg("a mount namespace of its own is needed, as root: %s", strerror(errno));
        }
        own_namespace = true;
    }
    char *size = text_format("size=%d", DISK_BYTES);
    if (mount("tmpfs", d.directory, "tmpfs", 0, size) != 0) {
        fail_msg("a small file system cannot be mounted (root is needed): %s", strerror(errno));
    }
    free(size);
    d.path = text_format("%s/s.db", d.directory);
    d.ballast = text_format("%s/ballast", d.directory);
    char *zeros = must_realloc(NULL, BALLAST_BYTES);
    memset(zeros, 1, BALLAST_BYTES);
    file_write_all(d.ballast, zeros, BALLAST_BYTES);
    free(zeros);
    return d;
}

static void disk_remove(disk *d)
{
    assert_int_equal(umount(d->directory), 0);
    directory_remove(d->directory);
    free(d->path);
    free(d->ballast);
}

typedef struct filler {
    weir *store;
    int number;
    int64_t acknowledged;
    weir_error err;
    int32_t status;
    pthread_barrier_t *begun; /* borrowed: nobody fills the disk before all have appended once */
} filler;

static void *filler_main(void *arg)
{
    filler *f = arg;
    char data[1024], stream[32];
    (void)snprintf(stream, sizeof(stream), "s-%d", f->number);
    (void)snprintf(data, sizeof(data), "{\"pad\":\"%0700d\"}", f->number);
    while (f->acknowledged < APPENDS_MAX) {
        int64_t at = -1;
        f->status = append_one(f->store, stream, WEIR_EXPECT_ANY, 0, data, &at, NULL, &f->err);
        if (f->acknowledged == 0) {
            (void)pthread_barrier_wait(f->begun);
        }
        if (f->status != WEIR_OK) {
            return NULL;
        }
        must(at == f->acknowledged, "a version is not the next one");
        f->acknowledged++;
    }
    return NULL;
}

static void full_check(const filler *f)
{
    if (f->status != WEIR_EIO || strstr(f->err.message, "disk full") == NULL) {
        fail_msg("caller %d: status %d, \"%s\" (%s)", f->number, f->status, f->err.message,
                 f->err.store_code);
    }
    assert_true(f->acknowledged > 0);
    assert_string_not_equal(f->err.store_code, "");
}

static int64_t version_of(weir *w, int number)
{
    char stream[32];
    const weir_stream *info = NULL;
    weir_error err;
    (void)snprintf(stream, sizeof(stream), "s-%d", number);
    if (weir_stream_info(w, text(stream), &info, &err) != WEIR_OK) {
        return -1;
    }
    const int64_t version = info->version;
    weir_stream_free(info);
    return version;
}

static void sound_check(const disk *d)
{
    char *sound = integrity_check(d->path);
    assert_string_equal(sound, "ok");
    free(sound);
}

/* Fills the disk, looks, makes room, goes on: with the same handle and with a new one. */
static void disk_fill(int threads, const char *settings)
{
    static filler fillers[THREADS];
    pthread_t ids[THREADS];
    pthread_barrier_t begun;
    disk d = disk_make();
    char *url = text_format("sqlite:%s%s", d.path, settings);
    weir *w = store_open(url, 0);
    assert_int_equal(pthread_barrier_init(&begun, NULL, (unsigned)threads), 0);
    for (int i = 0; i < threads; i++) {
        fillers[i] = (filler){ .store = w, .number = i, .begun = &begun };
        assert_int_equal(pthread_create(&ids[i], NULL, filler_main, &fillers[i]), 0);
    }
    int64_t total = 0;
    for (int i = 0; i < threads; i++) {
        (void)pthread_join(ids[i], NULL);
        full_check(&fillers[i]);
        assert_int_equal(version_of(w, i), fillers[i].acknowledged - 1);
        total += fillers[i].acknowledged;
    }
    assert_int_equal(pthread_barrier_destroy(&begun), 0);
    print_message("# full after %" PRId64 " appends\n", total);
    sound_check(&d);

    assert_int_equal(unlink(d.ballast), 0);
    weir_error err;
    int64_t at = -1;
    if (append_one(w, "s-0", WEIR_EXPECT_EXACT, fillers[0].acknowledged - 1, "{}", &at, NULL,
                   &err) != WEIR_OK) {
        fail_msg("there is room, and yet: %s", err.message);
    }
    assert_int_equal(at, fillers[0].acknowledged);
    weir_close(w);
    w = store_open(url, WEIR_OPEN_EXISTING);
    assert_int_equal(version_of(w, 0), at);
    assert_int_equal(append_one(w, "s-0", WEIR_EXPECT_ANY, 0, "{}", NULL, NULL, &err), WEIR_OK);
    weir_close(w);
    sound_check(&d);
    free(url);
    disk_remove(&d);
}

static void one_caller_fills_the_disk_and_goes_on_when_there_is_room(void **state)
{
    (void)state;
    disk_fill(1, "");
}

static void many_callers_fill_the_disk_and_each_learns_its_own_fate(void **state)
{
    (void)state;
    disk_fill(THREADS, "");
}

static void the_disk_fills_while_checkpoints_run(void **state)
{
    (void)state;
    disk_fill(1, "?checkpoint=10");
}

static void a_store_is_not_half_created_on_a_full_disk(void **state)
{
    (void)state;
    weir *w = NULL;
    weir_error err;
    disk d = disk_make();
    char *rest = text_format("%s/rest", d.directory);
    char *zeros = must_realloc(NULL, DISK_BYTES);
    memset(zeros, 1, DISK_BYTES);
    FILE *out = fopen(rest, "we");
    assert_non_null(out);
    (void)setvbuf(out, NULL, _IONBF, 0);
    assert_true(fwrite(zeros, 1, DISK_BYTES, out) < DISK_BYTES); /* all that is left */
    (void)fclose(out);
    free(zeros);

    char *url = text_format("sqlite:%s", d.path);
    const weir_options o = { WEIR_OPTIONS_INIT, .store_url = url };
    assert_int_equal(weir_open(&o, &w, &err), WEIR_EIO);
    assert_non_null(strstr(err.message, "full"));
    assert_int_equal(unlink(rest), 0);
    w = store_open(url, 0);
    assert_int_equal(append_one(w, "s-0", WEIR_EXPECT_NONE, 0, "{}", NULL, NULL, &err), WEIR_OK);
    weir_close(w);
    sound_check(&d);
    free(url);
    free(rest);
    disk_remove(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_caller_fills_the_disk_and_goes_on_when_there_is_room),
        cmocka_unit_test(many_callers_fill_the_disk_and_each_learns_its_own_fate),
        cmocka_unit_test(the_disk_fills_while_checkpoints_run),
        cmocka_unit_test(a_store_is_not_half_created_on_a_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
