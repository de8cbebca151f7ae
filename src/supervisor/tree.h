/* tree.h - every process below one process, whatever session or group it is in.
 *
 * A process that calls setsid leaves its group, but not the processes it descends from, as long as
 * one of them is a subreaper: that one becomes its parent when those in between have ended.
 * Async-signal-safe.
 */
#ifndef WEIR_SUPERVISOR_TREE_H
#define WEIR_SUPERVISOR_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { TREE_FDS = 3 }; /* how many descriptors it takes to look */

/* Whether `pid` and what is below it are left out. */
typedef bool (*tree_skip_fn)(pid_t pid);

/* Sends a signal to each process below this one, in no order, and says how many were alive.
 * group: not 0 for a process group that has just been sent it, whose processes are only counted.
 * skip: NULL for none. A process that is started meanwhile may be missed: to end them all, repeat
 * this until waitpid finds no child. SIZE_MAX: there are no descriptors left to look with. */
size_t weir__tree_signal(int number, pid_t group, tree_skip_fn skip);

#endif
