/* support.c - helpers of the stress tests; see support.h. */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

uint64_t rng_next(rng *r)
{
    r->state ^= r->state >> 12;
    r->state ^= r->state << 25;
    r->state ^= r->state >> 27;
    return r->state * 2685821657736338717ULL;
}

uint32_t rng_below(rng *r, uint32_t bound)
{
    return (uint32_t)((rng_next(r) >> 32) % bound);
}

rng rng_seeded(uint64_t seed)
{
    rng r = { seed * 0x9e3779b97f4a7c15ULL + 1 };
    if (r.state == 0) {
        r.state = 1;
    }
    for (int i = 0; i < 4; i++) {
        (void)rng_next(&r); /* neighbouring seeds begin alike */
    }
    return r;
}

void must(bool condition, const char *what)
{
    if (!condition) {
        (void)fprintf(stderr, "stress: %s\n", what);
        abort();
    }
}

void *must_realloc(void *ptr, size_t bytes)
{
    void *out = realloc(ptr, bytes > 0 ? bytes : 1);
    must(out != NULL, "out of memory");
    return out;
}

char *text_format(const char *format, ...)
{
    char *out = NULL;
    va_list args;
    va_start(args, format);
    const int len = vasprintf(&out, format, args);
    va_end(args);
    must(len >= 0, "out of memory");
    return out;
}

static char *directory_make_in(const char *top, const char *what)
{
    char *path = text_format("%s/weir-%s.XXXXXX", top, what);
    must(mkdtemp(path) != NULL, "cannot make a directory for the test");
    return path;
}

char *directory_make(const char *what)
{
    const char *top = getenv("TMPDIR");
    return directory_make_in(top != NULL ? top : "/tmp", what);
}

char *directory_make_volatile(const char *what)
{
    return access("/dev/shm", W_OK) == 0 ? directory_make_in("/dev/shm", what)
                                         : directory_make(what);
}

void directory_empty(const char *path)
{
    DIR *d = opendir(path);
    must(d != NULL, "cannot read a directory of the test");
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            must(unlinkat(dirfd(d), e->d_name, 0) == 0, "cannot remove a file of the test");
        }
    }
    (void)closedir(d);
}

void directory_remove(char *path)
{
    directory_empty(path);
    must(rmdir(path) == 0, "cannot remove a directory of the test");
    free(path);
}

void file_write_all(const char *path, const void *bytes, size_t len)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    must(fd >= 0, "cannot create a file of the test");
    for (size_t done = 0; done < len;) {
        const ssize_t n = write(fd, (const char *)bytes + done, len - done);
        must(n > 0, "cannot write a file of the test");
        done += (size_t)n;
    }
    must(close(fd) == 0, "cannot close a file of the test");
}

int64_t file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

int64_t mono_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

weir *store_open(const char *url, uint32_t flags)
{
    weir *w = NULL;
    weir_error err;
    const weir_options o = { WEIR_OPTIONS_INIT, .flags = flags, .store_url = url };
    if (weir_open(&o, &w, &err) != WEIR_OK) {
        (void)fprintf(stderr, "stress: cannot open %s: %s\n", url, err.message);
        abort();
    }
    return w;
}

weir *store_await(const char *url, int seconds)
{
    const int64_t end_us = mono_us() + seconds * INT64_C(1000000);
    const weir_options o = { WEIR_OPTIONS_INIT, .flags = WEIR_OPEN_EXISTING, .store_url = url };
    for (;;) {
        weir *w = NULL;
        weir_error err;
        const int32_t rc = weir_open(&o, &w, &err);
        if (rc == WEIR_OK) {
            return w;
        }
        if ((rc != WEIR_EUNAVAILABLE && rc != WEIR_EUNKNOWN) || mono_us() >= end_us) {
            (void)fprintf(stderr, "stress: cannot open %s: %s\n", url, err.message);
            abort();
        }
        (void)usleep(50000);
    }
}

weir_str text(const char *s)
{
    return (weir_str){ s, strlen(s) };
}

int32_t append_one(weir *w, const char *stream, int32_t expect, int64_t version, const char *data,
                   int64_t *at, int64_t *id, weir_error *err)
{
    const weir_new_event e = { WEIR_NEW_EVENT_INIT, .stream = text(stream),
                               .name = text("Stressed"), .data = text(data) };
    const weir_expectation x = { WEIR_EXPECTATION_INIT, .expect = expect, .version = version,
                                 .stream = text(stream) };
    const weir_new_event *events[] = { &e };
    const weir_expectation *expectations[] = { &x };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1,
                                    .expectations = expectations, .expectations_count = 1 };
    const weir_append_result *result = NULL;
    const int32_t rc = weir_append(w, &r, &result, err);
    if (rc == WEIR_OK) {
        must(result->streams_count == 1 && result->streams[0]->first == result->streams[0]->last,
             "one event was appended, the result speaks of another number");
        if (at != NULL) {
            *at = result->streams[0]->first;
        }
        if (id != NULL) {
            *id = result->streams[0]->id;
        }
        weir_append_result_free(result);
    }
    return rc;
}

char *integrity_check(const char *path)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    char *out = NULL;
    int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);
    if (rc == SQLITE_OK) {
        (void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        rc = sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &stmt, NULL);
    }
    if (rc == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW) {
        out = text_format("%s", (const char *)sqlite3_column_text(stmt, 0));
    } else {
        out = text_format("cannot be checked: %s", sqlite3_errmsg(db));
    }
    (void)sqlite3_finalize(stmt);
    (void)sqlite3_close(db);
    return out;
}
