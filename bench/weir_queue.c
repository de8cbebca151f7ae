/* weir_queue.c - Weir's side of raw_queue: the same rows through claim.h.
 *
 * The verbs of queue.h, and
 *
 *     weir_queue indexes --url URL [--lease 1]      the CREATE INDEX statements that --explain
 *                                                   recommends for this claim
 *
 * With --lease, Weir also looks for claims whose lease has ended, which raw_queue does not.
 */
#include "bench.h"
#include "claim/claim.h"
#include "queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct claimer {
    table_db *db;
    table_session *session;
    weir_str by;
    claim_request request;
    finish_request finish, back;
    table_result rows;
    table_value keys[QUEUE_LIMIT_MAX];
    bool finished[QUEUE_LIMIT_MAX];
    char name[QUEUE_NAME_BYTES]; /* by */
} claimer;

static weir_str str(const char *text)
{
    return (weir_str){ .ptr = text, .len = strlen(text) };
}

static table_value text_value(const char *text)
{
    return (table_value){ .kind = TABLE_TEXT, .text = str(text) };
}

static void must(weir_status status, const weir_error *err)
{
    bench_must(status == WEIR_OK, err->message);
}

static void worker_connect(claimer *w, const char *url)
{
    char sqlite[4096];
    weir_error err = { 0 };
    (void)snprintf(sqlite, sizeof sqlite, "sqlite:%s", url);
    const table_options options = { .url = queue_is_postgres(url) ? url : sqlite };
    must(weir__table_open(&w->db, &options, &err), &err);
    must(weir__table_session_open(w->db, &w->session, &err), &err);
}

static void requests(claimer *w, const queue_options *options)
{
    static claim_set claimed, pending, done;
    claimed = (claim_set){ .column = str("status"), .value = text_value("claimed") };
    pending = (claim_set){ .column = str("status"), .value = text_value("pending") };
    done = (claim_set){ .column = str("status"), .value = text_value("done") };
    w->request = (claim_request){ .table = str("jobs"),
                                  .where = str("status = 'pending'"),
                                  .limit = options->limit,
                                  .writes.set = &claimed,
                                  .writes.set_count = 1,
                                  .by = w->by,
                                  .lease_us = options->lease ? QUEUE_LEASE_US : 0 };
    w->finish = (finish_request){ .table = str("jobs"),
                                  .key_count = 1,
                                  .kind = FINISH_DONE,
                                  .by = w->by,
                                  .writes.set = &done,
                                  .writes.set_count = 1 };
    w->back = w->finish;
    w->back.kind = FINISH_RELEASE;
    w->back.writes.set = &pending;
}

static void *worker_open(const queue_options *options, const char *name)
{
    claimer *w = calloc(1, sizeof *w);
    bench_must(w != NULL, "no memory");
    (void)snprintf(w->name, sizeof w->name, "%s", name);
    w->by = str(w->name);
    worker_connect(w, options->url);
    requests(w, options);
    return w;
}

static void worker_close(void *worker)
{
    claimer *w = worker;
    weir__table_result_free(&w->rows);
    weir__table_session_close(w->session);
    weir__table_close(w->db);
    free(w);
}

static size_t worker_take(void *worker, int64_t *ids)
{
    claimer *w = worker;
    weir_error err = { 0 };
    must(weir__claim_rows(w->session, &w->request, &w->rows, &err), &err);
    bench_must(w->rows.rows_count <= QUEUE_LIMIT_MAX, "more rows than asked for");
    for (size_t i = 0; i < w->rows.rows_count; i++) {
        ids[i] = strtoll(w->rows.cells[i * w->rows.columns_count].text.ptr, NULL, 10);
    }
    return w->rows.rows_count;
}

static void write_rows(claimer *w, finish_request *request, const int64_t *ids, size_t count)
{
    weir_error err = { 0 };
    for (size_t i = 0; i < count; i++) {
        w->keys[i] = (table_value){ .kind = TABLE_INTEGER, .number = ids[i] };
    }
    if (count == 1) {
        request->key = w->keys;
        must(weir__claim_finish(w->session, request, NULL, &err), &err);
        return;
    }
    const finish_batch batch = { .keys = w->keys, .count = count };
    must(weir__claim_finish_batch(w->session, request, &batch, w->finished, &err), &err);
    for (size_t i = 0; i < count; i++) {
        bench_must(w->finished[i], "a row was lost");
    }
}

static void worker_finish(void *worker, const int64_t *ids, size_t count)
{
    claimer *w = worker;
    write_rows(w, &w->finish, ids, count);
}

static void worker_put_back(void *worker, const int64_t *ids, size_t count)
{
    claimer *w = worker;
    write_rows(w, &w->back, ids, count);
}

static void indexes(const queue_options *options)
{
    claimer *w = worker_open(options, "worker-0");
    claim_plan plan = { 0 };
    weir_error err = { 0 };
    must(weir__claim_explain(w->session, &w->request, &plan, &err), &err);
    (void)printf("%.*s", (int)plan.indexes.len, plan.indexes.len == 0 ? "" : plan.indexes.ptr);
    weir__claim_plan_free(&plan);
    worker_close(w);
}

int main(int argc, char **argv)
{
    static const queue_side side = { .open = worker_open,
                                     .close = worker_close,
                                     .take = worker_take,
                                     .finish = worker_finish,
                                     .put_back = worker_put_back };
    if (queue_run(argc, argv, &side)) {
        return 0;
    }
    bench_must(argc > 1 && strcmp(argv[1], "indexes") == 0, "work, take or indexes");
    indexes(&(queue_options){ .url = bench_text(argc, argv, "url", ""),
                              .limit = bench_number(argc, argv, "limit", 1),
                              .lease = bench_number(argc, argv, "lease", 0) != 0 });
    return 0;
}
