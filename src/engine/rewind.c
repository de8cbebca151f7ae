/* rewind.c - the log became another one while a worker ran: a failover, or a restored backup.
 *
 * Every poll and every chunk names the log; a lease or a route that was refused has the poller ask
 * at once. Whoever finds another name has every lane give up what it holds, which was read from the
 * log before, and the router begin again where the store is.
 *
 * INVARIANT  A change is said once, by one task, whoever else finds it too: names are compared
 * under worker.mu, and an answer to a question from before the last change says nothing.
 */
#include "base/str.h"
#include "engine/lane.h"
#include "engine/router.h"

#include <stdio.h>

int64_t weir__worker_log_ask(worker *w)
{
    weir__lock(&w->mu);
    const int64_t asked = ++w->log_asked;
    weir__unlock(&w->mu);
    return asked;
}

/* lost: something that was read is missing. Otherwise another server goes on with the log, and
 * nobody can tell whether something was lost that was not read. */
static void tell_rewound(worker *w, const char *before, const char *now, bool lost)
{
    const log_field fields[] = {
        weir__log_text_field("epoch_before", weir__str(before)),
        weir__log_text_field("epoch", weir__str(now)),
        weir__log_text_field("lost", weir__str(lost ? "yes" : "unknown")),
    };

    weir__worker_log(w, lost ? LOG_ERROR : LOG_WARNING, "log_rewound", fields,
                     sizeof fields / sizeof fields[0]);
}

bool weir__worker_log_changed_locked(const worker *w, int64_t asked)
{
    return w->log_changed > asked;
}

bool weir__worker_log_is(worker *w, int64_t asked, const char *epoch, const char *log)
{
    char before[sizeof w->log];

    weir__lock(&w->mu);
    const bool known = w->epoch[0] != '\0';
    const bool lost = strcmp(w->epoch, epoch) != 0;
    const bool changed = known && asked > w->log_changed && (lost || strcmp(w->log, log) != 0);
    if (changed || !known) {
        (void)snprintf(before, sizeof before, "%s", w->log);
        (void)snprintf(w->epoch, sizeof w->epoch, "%s", epoch);
        (void)snprintf(w->log, sizeof w->log, "%s", log);
        w->log_changed = changed ? ++w->log_asked : w->log_changed;
    }
    weir__unlock(&w->mu);
    if (!changed) {
        return false;
    }
    tell_rewound(w, before, log, lost);
    /* Numbers of definitions may be somebody else's there. */
    atomic_store(&w->router.rewound, true);
    weir__registry_unserve(w->registry);
    for (size_t i = 0; i < w->lanes_count; i++) {
        weir__lane_give_up(&w->lanes[i]);
    }
    weir__router_ask(&w->router);
    return true;
}
