/* slot_kit_test.h - handlers that note what they are given and do what a test wants, and a way to
 * let all tasks of a worker run while time is moved by hand. On top of worker_kit_test.h.
 */
#ifndef WEIR_ENGINE_SLOT_KIT_TEST_H
#define WEIR_ENGINE_SLOT_KIT_TEST_H

#include "engine/lane.h"
#include "engine/worker_kit_test.h"

/* A test on each of the stores; kit_open(*state != NULL) opens the one that is meant. */
#define TEST(test)                                                                                 \
    { #test " on memory", test, NULL, NULL, NULL },                                                \
    {                                                                                              \
#test " on SQLite", test, NULL, NULL, &kit_on_sqlite                                       \
    }
extern bool kit_on_sqlite;

#define MS INT64_C(1000)
#define S  INT64_C(1000000)

enum { SEEN_BYTES = 8192 };

/* What a handler does. Zeroed: says WEIR_DONE. */
typedef struct recorder {
    char seen[SEEN_BYTES]; /* "reaction:event/attempt " each */
    size_t calls;
    int64_t fail_event; /* answers `outcome` for this event (0: for none, -1: for all)... */
    size_t fail_times;  /* ... so often; 0: always */
    int32_t outcome;
    const char *why;
    int64_t defer_us;
    const char *effect; /* appends one "Done" to this stream for each event */
    int32_t expect;     /* of that append */
    bool fresh;         /* expects exactly the version that the stream has now */
    void (*during)(struct recorder *r, weir_delivery *d); /* while the handler runs */
    void *ctx;
    weir_store *store;
    kit_process *process;
} recorder;

int32_t kit_handle(void *ctx, weir_delivery *d);

/* A reaction to "Placed" in all streams, by kit_handle. Fields of `more` that are set replace the
 * usual ones. */
void kit_handler(kit_process *p, recorder *r, const char *name, const char *to,
                 const weir_reaction *more);
void kit_lane(kit_process *p, const weir_lane *declared);

/* Runs all tasks of the worker as they want to be run, for so long. The time is at its end then. */
void kit_drive(kit_process *p, int64_t us);
/* Steps one task until it waits. */
int64_t kit_steps(task *t);

/* A target as it is now. Texts are copied. */
typedef struct kit_target {
    store_target_state state;
    int64_t event, attempts, due_us, fence, lost, watermark;
    bool behind, blocked;
    char error[STORE_ERROR_TEXT_BYTES_MAX + 1], reaction[520];
} kit_target;
kit_target kit_target_of(weir_store *s, const char *name);
int64_t kit_retries(weir_store *s, const char *target, const char *reaction_name);
/* The version of a stream's last event; -1: there is none. */
int64_t kit_version(weir_store *s, const char *stream);
/* Takes the lease of a target away, as an operator's reset to where it is does. */
void kit_take_away(weir_store *s, const char *target, int64_t position);
/* The id of the one event that is parked; fails the test when there is not just one. */
int64_t kit_parked_id(weir_store *s, char *error, size_t error_bytes);
/* The store finds nothing wrong with itself. */
void kit_check(weir_store *s);

#endif
