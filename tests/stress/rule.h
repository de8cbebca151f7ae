/* rule.h - watches the rule that keeps several processes on one SQLite file safe.
 *
 * SQLite before 3.51.3 can corrupt a database when one connection checkpoints while another
 * commits. So nothing may be written to the database file or its WAL, and no WAL may be recovered,
 * unless this process holds the side lock (an exclusive lock on PATH-weir); and in WAL mode the
 * database file (that is: a checkpoint) and the WAL may only be written while a connection of this
 * process holds SQLite's own writer lock. Every breach is counted and the first ones are kept as
 * text.
 *
 * USE  Open the store through RULE_VFS.
 */
#ifndef WEIR_TESTS_STRESS_RULE_H
#define WEIR_TESTS_STRESS_RULE_H

#include <stdint.h>

#define RULE_VFS "rule"

typedef struct rule_report {
    int64_t commits;     /* writes to a WAL                        */
    int64_t checkpoints; /* writes to a database in WAL mode       */
    int64_t recoveries;  /* WALs recovered                         */
    int64_t others;      /* writes to a database in another mode   */
    int64_t breaches;
    char first[4][160]; /* what the first breaches were           */
} rule_report;

void rule_register(void); /* the first time; after that a no-op */
void rule_reset(void);
rule_report rule_now(void);

#endif
