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

/* Prometheus' text format: what the store knows, and what each worker said last that it had
 * counted. false: no memory, `out` is of no use. */
bool weir__cli_status_metrics(const status_facts *f, weir_buffer *out);

#endif
