/* claim_worker.c - a process that claims: told what to do on stdin, there to be stopped and killed.
 *
 *   claim_worker URL fast|portable
 *
 * A line is a verb and words NAME=VALUE; the answer is a line:
 *
 *   claim limit= [by=] [lease=US] [fence=1] [hold=1] [mode=skip|wait|nowait] [wait=US] [where=]
 *                          ok ID:FENCE ID:FENCE ...
 *   drain (the same)       batch ID ID ..., for every claim until nothing is left; then: end
 *   finish id= kind=done|release|extend [by=] [fence=N] [lease=US]        ok
 *   begin, commit, rollback                                               ok
 *   now                    now US, by the clock of this process
 *   die at=N               ok; it kills itself at the N-th step after that
 *
 * or "error CODE MESSAGE". A step is whatever lies between two steps of a claim: on SQLite the
 * begin and the end of each statement and each row, on PostgreSQL the moments before and after
 * each message to the server.
 */
#include "base/error.h"
#include "base/str.h"
#include "claim/claim.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

enum { LINE_BYTES = 4096, WORDS_MAX = 16 };

typedef struct worker {
    table_db *db;
    table_session *s;
    table_result r;
    weir_error err;
    claim_path path;
    char *words[WORDS_MAX];
    size_t words_count;
} worker;

/* ---- dying ----------------------------------------------------------------------------------- */

static int64_t steps_left = -1; /* -1: it lives */

static void step(void)
{
    if (steps_left > 0 && --steps_left == 0) {
        (void)kill(getpid(), SIGKILL);
    }
}

/* The one that libpq finds: what this program exports comes before the C library's. */
ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
    step();
    const long sent = syscall(SYS_sendto, fd, bytes, len, flags, NULL, 0);
    step();
    return sent;
}

static int on_trace(unsigned event, void *ctx, void *p, void *x)
{
    (void)event;
    (void)ctx;
    (void)p;
    (void)x;
    step();
    return 0;
}

/* ---- what was asked for ---------------------------------------------------------------------- */

/* The value of a word; NULL: it was not given. */
static const char *word(const worker *w, const char *name)
{
    const size_t len = strlen(name);
    for (size_t i = 1; i < w->words_count; i++) {
        if (strncmp(w->words[i], name, len) == 0 && w->words[i][len] == '=') {
            return w->words[i] + len + 1;
        }
    }
    return NULL;
}

static int64_t number(const worker *w, const char *name)
{
    const char *value = word(w, name);
    return value == NULL ? 0 : strtoll(value, NULL, 10);
}

static weir_str str(const worker *w, const char *name)
{
    const char *value = word(w, name);
    return value == NULL ? (weir_str){ 0 } : weir__str(value);
}

static bool is(const char *value, const char *wanted)
{
    return value != NULL && strcmp(value, wanted) == 0;
}

static claim_request request_of(const worker *w, const claim_set *set)
{
    const bool hold = number(w, "hold") != 0;
    const weir_str where = str(w, "where");
    return (claim_request){
        .table = weir__str("jobs"),
        .where = where.ptr == NULL ? weir__str("status = 'pending'") : where,
        .limit = number(w, "limit"),
        .writes.set = set,
        .writes.set_count = hold ? 0 : 1,
        .by = str(w, "by"),
        .lease_us = number(w, "lease"),
        .fence_column = number(w, "fence") != 0 ? weir__str("fence") : (weir_str){ 0 },
        .mode = is(word(w, "mode"), "wait")     ? CLAIM_WAIT
                : is(word(w, "mode"), "nowait") ? CLAIM_NOWAIT
                                                : CLAIM_SKIP,
        .wait_us = number(w, "wait"),
        .hold = hold,
        .path = w->path,
    };
}

static const table_cell *cell_of(const table_result *r, size_t row, const char *column)
{
    for (size_t i = 0; i < r->columns_count; i++) {
        if (weir__str_equal(r->names[i], weir__str(column))) {
            return &r->cells[row * r->columns_count + i];
        }
    }
    return NULL;
}

static void print_cell(const table_result *r, size_t row, const char *column)
{
    const table_cell *cell = cell_of(r, row, column);
    if (cell != NULL && !cell->null) {
        printf("%.*s", (int)cell->text.len, cell->text.ptr);
    }
}

static void answer(const worker *w, weir_status status, const char *text)
{
    if (status == WEIR_OK) {
        printf("%s\n", text);
    } else {
        printf("error %d %s\n", (int)status, w->err.message);
    }
    fflush(stdout);
}

/* ---- verbs ----------------------------------------------------------------------------------- */

static void claim(worker *w)
{
    const claim_set set = { .column = weir__str("status"),
                            .value = { .kind = TABLE_TEXT, .text = weir__str("claimed") } };
    const claim_request request = request_of(w, &set);
    const weir_status status = weir__claim_rows(w->s, &request, &w->r, &w->err);
    if (status != WEIR_OK) {
        answer(w, status, "");
        return;
    }
    printf("ok");
    for (size_t i = 0; i < w->r.rows_count; i++) {
        printf(" ");
        print_cell(&w->r, i, "id");
        printf(":");
        print_cell(&w->r, i, "fence");
    }
    answer(w, WEIR_OK, "");
}

static void drain(worker *w)
{
    const claim_set set = { .column = weir__str("status"),
                            .value = { .kind = TABLE_TEXT, .text = weir__str("claimed") } };
    const claim_request request = request_of(w, &set);
    for (;;) {
        const weir_status status = weir__claim_rows(w->s, &request, &w->r, &w->err);
        if (status != WEIR_OK || w->r.rows_count == 0) {
            answer(w, status, "end");
            return;
        }
        printf("batch");
        for (size_t i = 0; i < w->r.rows_count; i++) {
            printf(" ");
            print_cell(&w->r, i, "id");
        }
        printf("\n");
    }
}

static void finish(worker *w)
{
    const table_value key = { .kind = TABLE_INTEGER, .number = number(w, "id") };
    const claim_set set = { .column = weir__str("status"),
                            .value = { .kind = TABLE_TEXT, .text = weir__str("done") } };
    const char *kind = word(w, "kind");
    const finish_request request = {
        .table = weir__str("jobs"),
        .key = &key,
        .key_count = 1,
        .kind = is(kind, "release")  ? FINISH_RELEASE
                : is(kind, "extend") ? FINISH_EXTEND
                                     : FINISH_DONE,
        .by = str(w, "by"),
        .has_fence = word(w, "fence") != NULL,
        .fence = number(w, "fence"),
        .fence_column = word(w, "fence") != NULL ? weir__str("fence") : (weir_str){ 0 },
        .lease_us = number(w, "lease"),
        .writes.set = &set,
        .writes.set_count = is(kind, "extend") ? 0 : 1,
    };
    answer(w, weir__claim_finish(w->s, &request, NULL, &w->err), "ok");
}

static void now(const worker *w)
{
    struct timespec t;
    char text[64];
    (void)clock_gettime(CLOCK_REALTIME, &t);
    (void)snprintf(text, sizeof text, "now %" PRId64,
                   (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000);
    answer(w, WEIR_OK, text);
}

static void obey(worker *w)
{
    const char *verb = w->words[0];
    if (is(verb, "claim")) {
        claim(w);
    } else if (is(verb, "drain")) {
        drain(w);
    } else if (is(verb, "finish")) {
        finish(w);
    } else if (is(verb, "begin")) {
        answer(w, weir__table_begin(w->s, &w->err), "ok");
    } else if (is(verb, "commit")) {
        answer(w, weir__table_commit(w->s, &w->err), "ok");
    } else if (is(verb, "rollback")) {
        weir__table_rollback(w->s);
        answer(w, WEIR_OK, "ok");
    } else if (is(verb, "now")) {
        now(w);
    } else if (is(verb, "die")) {
        answer(w, WEIR_OK, "ok");
        steps_left = number(w, "at");
    } else {
        answer(w, WEIR_OK, "error 0 no such verb");
    }
}

int main(int argc, char **argv)
{
    worker w = { .err = { .size = sizeof w.err } };
    char line[LINE_BYTES];
    if (argc != 3) {
        fprintf(stderr, "usage: claim_worker URL fast|portable\n");
        return 2;
    }
    w.path = is(argv[2], "portable") ? CLAIM_PATH_PORTABLE : CLAIM_PATH_FAST;
    const table_options options = { .url = argv[1], .application = weir__str("claim_worker") };
    weir_status status = weir__table_open(&w.db, &options, &w.err);
    if (status == WEIR_OK) {
        status = weir__table_session_open(w.db, &w.s, &w.err);
    }
    answer(&w, status, "ready");
    if (status == WEIR_OK && weir__table_dialect(w.db) == TABLE_SQLITE) {
        (void)sqlite3_trace_v2(weir__table_native(w.s),
                               SQLITE_TRACE_STMT | SQLITE_TRACE_PROFILE | SQLITE_TRACE_ROW,
                               on_trace, NULL);
    }
    while (status == WEIR_OK && fgets(line, sizeof line, stdin) != NULL) {
        char *rest = NULL;
        w.words_count = 0;
        for (char *next = strtok_r(line, " \n", &rest); next != NULL && w.words_count < WORDS_MAX;
             next = strtok_r(NULL, " \n", &rest)) {
            w.words[w.words_count++] = next;
        }
        if (w.words_count > 0) {
            obey(&w);
        }
    }
    weir__table_session_close(w.s);
    weir__table_close(w.db);
    weir__table_result_free(&w.r);
    return status == WEIR_OK ? 0 : 1;
}
