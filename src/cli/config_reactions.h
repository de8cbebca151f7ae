/* config_reactions.h - what a weir.yaml says: the store, lanes and reactions, as weir.h has them.
 *
 * A config that was read without a problem is one that the engine takes: all that weir_engine_start
 * would refuse without asking the store has been looked for, and has a line and a column.
 */
#ifndef WEIR_CLI_CONFIG_REACTIONS_H
#define WEIR_CLI_CONFIG_REACTIONS_H

#include "base/memory.h"
#include "weir.h"

#include <stddef.h>

/* Zeroed is empty. */
typedef struct cli_config {
    weir_arena arena;           /* owned: everything below but `problems` */
    const char *store;          /* NULL: not said */
    int64_t memory_limit_bytes; /* 0: not said */
    weir_lane *lanes;
    size_t lanes_count;
    weir_reaction *reactions;
    size_t reactions_count;
    weir_buffer problems; /* one line each: file:line:column: found, expected */
    size_t problems_count;
} cli_config;

/* Reads a file. WEIR_EINVAL: `problems` has all of them, and err the first; ENOTFOUND; EIO. *out:
 * ended by weir__cli_config_free, also after a failure. */
weir_status weir__cli_config_read(cli_config *out, const char *path, weir_error *err);
/* Looks at what was put together by other means than a file (`who`, in messages), as the engine
 * will. */
weir_status weir__cli_config_check(cli_config *config, const char *who, weir_error *err);
void weir__cli_config_free(cli_config *config);

/* memory_limit: ROOM_BYTES_TEXT says what is allowed. false: it is not. */
bool weir__cli_config_memory(weir_str text, int64_t *out);
/* from: start, now or a position. false: none of them. */
bool weir__cli_config_from(weir_str text, weir_reaction *into);
/* priority: a number, or a template. */
void weir__cli_config_priority(weir_str text, weir_reaction *into);

#endif
