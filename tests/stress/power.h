/* power.h - loss of power, modelled: a record of what a program did to its database files, and what
 * a disk may hold when the current goes off at any step of it.
 *
 * MODEL
 *   A write, a change of size and a change of a directory entry are sure to survive only when they
 *   were synced: file contents by a sync of that file, entries by a sync of the directory (SQLite
 * syncs the directory with the first sync of a journal or WAL it created, and on request when it
 * deletes one). Of what was not synced anything may survive: all, nothing, or any part, in units of
 * 512-byte sectors, in any order. Bytes beside a sector that is written are safe (powersafe
 * overwrite, as SQLite assumes by default). The shared-memory index never survives.
 *
 * USE  Open the store through POWER_VFS, between power_begin and power_end; power_now tells the
 * step that an acknowledgement belongs to. Then play the record with a player, step by step, and
 * let it write the files as they would be found into a directory.
 */
#ifndef WEIR_TESTS_STRESS_POWER_H
#define WEIR_TESTS_STRESS_POWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POWER_VFS "power"

typedef enum power_kind {
    POWER_CREATE,
    POWER_WRITE,
    POWER_TRUNCATE,
    POWER_SYNC,
    POWER_DELETE,
    POWER_SYNC_DIRECTORY,
} power_kind;

typedef enum power_loss {
    POWER_LOSE_NOTHING, /* the operating system got everything out in time */
    POWER_LOSE_ALL,     /* nothing that was not synced                     */
    POWER_LOSE_SOME,    /* a seeded part of it, sector by sector           */
} power_loss;

typedef struct power_player power_player;

/* One record at a time. The VFS is registered with the first. */
void power_begin(void);
/* How many steps there are so far: what is acknowledged now was done in these. */
size_t power_now(void);
/* Ends the recording; no file of it may be open any more. Returns the number of steps. */
size_t power_end(void);
power_kind power_step_kind(size_t step);

/* Plays the record that ended last. */
power_player *power_player_open(void);
void power_player_step(power_player *p);
/* Writes into `directory`, which must be empty, what a cut after the steps played would leave. */
void power_player_cut(const power_player *p, power_loss loss, uint64_t seed, const char *directory);
void power_player_close(power_player *p);

#endif
