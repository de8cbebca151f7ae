/* status.h - what weir status has found out, for its ways of printing it. */
#ifndef WEIR_CLI_STATUS_H
#define WEIR_CLI_STATUS_H

#include "cli/cli.h"
#include "store/store.h"

typedef struct status_facts {
    char *store; /* owned: the URL as it may be shown */
    store_positions positions;
    store_stats stats;
    store_lane_list lanes;
    store_reaction_list reactions;
    store_holder_list holders; /* of what keeps `safe` below `head` */
    store_worker_list workers;
} status_facts;

/* weir__status_free ends it, also after a failure. */
weir_status weir__status_collect(const cli *c, weir_store *store, status_facts *f, weir_error *err);
void weir__status_free(status_facts *f);

/* In the order in which they are shown. */
typedef enum status_table {
    STATUS_FACTS, /* two fields: its name, and what it is */
    STATUS_HOLDERS,
    STATUS_WORKERS,
    STATUS_LANES,
    STATUS_TABLES_COUNT,
} status_table;

/* A row; the fields are borrowed until it returns. false: no more of them. */
typedef bool (*status_row_fn)(void *ctx, status_table table, const report_field *fields,
                              size_t count);
/* Every row for people. false: the function said so. */
bool weir__status_each(const status_facts *f, status_row_fn fn, void *ctx);
/* In the form of the run. false: no memory, or nobody listens. */
bool weir__status_print(cli *c, const status_facts *f);

/* status_watch.c. On a full screen, or printed again whenever it has changed. */
weir_status weir__status_watch(cli *c, weir_store *store, weir_error *err);

/* Prometheus' text format: what the store knows, and what each worker said last that it had
 * counted. false: no memory, `out` is of no use. */
bool weir__cli_status_metrics(const status_facts *f, weir_buffer *out);

#endif
