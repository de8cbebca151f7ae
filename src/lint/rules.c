/* rules.c - what is asked of a claim: each rule's name, its sentence, and a pair of examples that
 * a test holds to it: the first has this finding alone, the second has none.
 */
#include "lint/lint.h"

const lint_rule_info weir__lint_rules[LINT_RULES_COUNT] = {
    [LINT_NO_ROW_LOCK] = {
        .name = "no-row-lock",
        .message = "two workers can read the same row before either of them writes it, and both do "
                   "its work: add FOR UPDATE SKIP LOCKED (in SQLite: BEGIN IMMEDIATE)",
        .wrong = "BEGIN;\n"
                 "SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1;\n"
                 "UPDATE jobs SET status = 'claimed' WHERE id = $1;\n"
                 "COMMIT;\n",
        .right = "BEGIN;\n"
                 "SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1\n"
                 "   FOR UPDATE SKIP LOCKED;\n"
                 "UPDATE jobs SET status = 'claimed' WHERE id = $1;\n"
                 "COMMIT;\n",
    },
    [LINT_NO_SKIP_LOCKED] = {
        .name = "no-skip-locked",
        .message = "a worker waits for the row that another one has instead of taking the next: "
                   "add SKIP LOCKED (or NOWAIT, or SET lock_timeout, if it is meant to)",
        .wrong = "BEGIN;\n"
                 "SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE;\n"
                 "UPDATE jobs SET status = 'claimed' WHERE id = $1;\n"
                 "COMMIT;\n",
        .right = "BEGIN;\n"
                 "SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1\n"
                 "   FOR UPDATE SKIP LOCKED;\n"
                 "UPDATE jobs SET status = 'claimed' WHERE id = $1;\n"
                 "COMMIT;\n",
    },
    [LINT_NO_ORDER] = {
        .name = "no-order",
        .message = "which rows are claimed is left to chance, and old ones may wait for ever: add "
                   "ORDER BY, ending in the primary key",
        .wrong = "WITH picked AS MATERIALIZED (\n"
                 "    SELECT id FROM jobs WHERE status = 'pending' LIMIT 5\n"
                 "       FOR UPDATE SKIP LOCKED)\n"
                 "UPDATE jobs SET status = 'claimed' FROM picked WHERE jobs.id = picked.id\n"
                 "RETURNING jobs.id;\n",
        .right = "WITH picked AS MATERIALIZED (\n"
                 "    SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5\n"
                 "       FOR UPDATE SKIP LOCKED)\n"
                 "UPDATE jobs SET status = 'claimed' FROM picked WHERE jobs.id = picked.id\n"
                 "RETURNING jobs.id;\n",
    },
    [LINT_NO_TIE_BREAK] = {
        .name = "no-tie-break",
        .message = "rows that are equal in these columns come in any order, another one each time: "
                   "end ORDER BY with the primary key",
        .wrong = "WITH picked AS MATERIALIZED (\n"
                 "    SELECT id FROM jobs WHERE status = 'pending' ORDER BY due LIMIT 5\n"
                 "       FOR UPDATE SKIP LOCKED)\n"
                 "UPDATE jobs SET status = 'claimed' FROM picked WHERE jobs.id = picked.id\n"
                 "RETURNING jobs.id;\n",
        .right = "WITH picked AS MATERIALIZED (\n"
                 "    SELECT id FROM jobs WHERE status = 'pending' ORDER BY due, id LIMIT 5\n"
                 "       FOR UPDATE SKIP LOCKED)\n"
                 "UPDATE jobs SET status = 'claimed' FROM picked WHERE jobs.id = picked.id\n"
                 "RETURNING jobs.id;\n",
    },
    [LINT_NO_LIMIT] = {
        .name = "no-limit",
        .message = "the first worker claims every row there is, and the others get nothing: add "
                   "LIMIT",
        .wrong = "WITH picked AS MATERIALIZED (\n"
                 "    SELECT id FROM jobs WHERE status = 'pending' ORDER BY id\n"
                 "       FOR UPDATE SKIP LOCKED)\n"
                 "UPDATE jobs SET status = 'claimed' FROM picked WHERE jobs.id = picked.id\n"
                 "RETURNING jobs.id;\n",
        .right = "WITH picked AS MATERIALIZED (\n"
                 "    SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5\n"
                 "       FOR UPDATE SKIP LOCKED)\n"
                 "UPDATE jobs SET status = 'claimed' FROM picked WHERE jobs.id = picked.id\n"
                 "RETURNING jobs.id;\n",
    },
    [LINT_WRONG_LIMIT] = {
        .name = "wrong-limit",
        .message = "the claim takes another number of rows than --limit asks for: write that LIMIT",
        .wrong = "WITH picked AS MATERIALIZED (\n"
                 "    SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1\n"
                 "       FOR UPDATE SKIP LOCKED)\n"
                 "UPDATE jobs SET status = 'claimed' FROM picked WHERE jobs.id = picked.id\n"
                 "RETURNING jobs.id;\n",
        .right = "WITH picked AS MATERIALIZED (\n"
                 "    SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 10\n"
                 "       FOR UPDATE SKIP LOCKED)\n"
                 "UPDATE jobs SET status = 'claimed' FROM picked WHERE jobs.id = picked.id\n"
                 "RETURNING jobs.id;\n",
    },
    [LINT_LIMIT_NOT_KEPT] = {
        .name = "limit-not-kept",
        .message = "PostgreSQL may run this subquery once for every row of the table, each time "
                   "with a new LIMIT, and claim them all: put it in WITH ... AS MATERIALIZED, or "
                   "write = ANY(ARRAY(SELECT ...))",
        .wrong = "UPDATE jobs SET status = 'claimed'\n"
                 " WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5\n"
                 "                 FOR UPDATE SKIP LOCKED)\n"
                 "RETURNING id;\n",
        .right = "UPDATE jobs SET status = 'claimed'\n"
                 " WHERE id = ANY(ARRAY(\n"
                 "           SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5\n"
                 "              FOR UPDATE SKIP LOCKED))\n"
                 "RETURNING id;\n",
    },
    [LINT_NO_FLIP] = {
        .name = "no-flip",
        .message = "the claimed row still fulfils the conditions of the claim, and is claimed "
                   "again after the COMMIT: change a column that its WHERE asks for, or delete it",
        .wrong = "BEGIN;\n"
                 "SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1\n"
                 "   FOR UPDATE SKIP LOCKED;\n"
                 "UPDATE jobs SET claimed_by = 'worker-7' WHERE id = $1;\n"
                 "COMMIT;\n",
        .right = "BEGIN;\n"
                 "SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1\n"
                 "   FOR UPDATE SKIP LOCKED;\n"
                 "UPDATE jobs SET status = 'claimed', claimed_by = 'worker-7' WHERE id = $1;\n"
                 "COMMIT;\n",
    },
    [LINT_NOT_ONE_TRANSACTION] = {
        .name = "not-one-transaction",
        .message = "the lock is gone when its statement ends, before the row is marked: put both "
                   "between BEGIN and COMMIT, or make them one statement",
        .wrong = "SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1\n"
                 "   FOR UPDATE SKIP LOCKED;\n"
                 "UPDATE jobs SET status = 'claimed' WHERE id = $1;\n",
        .right = "BEGIN;\n"
                 "SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1\n"
                 "   FOR UPDATE SKIP LOCKED;\n"
                 "UPDATE jobs SET status = 'claimed' WHERE id = $1;\n"
                 "COMMIT;\n",
    },
    [LINT_WORK_UNDER_LOCK] = {
        .name = "work-under-lock",
        .message = "rows stay locked, and a transaction open, while this waits: mark the row, "
                   "COMMIT, then do the work",
        .wrong = "BEGIN;\n"
                 "SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1\n"
                 "   FOR UPDATE SKIP LOCKED;\n"
                 "SELECT http_post('https://example.org/pay', '{}', 'application/json');\n"
                 "UPDATE jobs SET status = 'done' WHERE id = $1;\n"
                 "COMMIT;\n",
        .right = "BEGIN;\n"
                 "SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1\n"
                 "   FOR UPDATE SKIP LOCKED;\n"
                 "UPDATE jobs SET status = 'claimed' WHERE id = $1;\n"
                 "COMMIT;\n"
                 "SELECT http_post('https://example.org/pay', '{}', 'application/json');\n"
                 "UPDATE jobs SET status = 'done' WHERE id = $1;\n",
    },
    [LINT_LOCK_KEY_COLLIDES] = {
        .name = "lock-key-collides",
        .message = "the key is a hash of 32 bits, so that two names can share one lock and wait "
                   "for each other: use hashtextextended(name, 0), or weir lock",
        .wrong = "BEGIN;\n"
                 "SELECT pg_advisory_xact_lock(hashtext('expense-reconciler'));\n"
                 "COMMIT;\n",
        .right = "BEGIN;\n"
                 "SELECT pg_advisory_xact_lock(hashtextextended('expense-reconciler', 0));\n"
                 "COMMIT;\n",
    },
    [LINT_LOCK_NOT_RETURNED] = {
        .name = "lock-not-returned",
        .message = "PostgreSQL may call this for rows that LIMIT or another condition leaves out, "
                   "and nobody releases their locks: pick the rows in a subquery, lock outside it",
        .wrong = "SELECT id, pg_try_advisory_lock(id)\n"
                 "  FROM jobs WHERE status = 'pending' LIMIT 5;\n",
        .right = "SELECT id, pg_try_advisory_lock(id)\n"
                 "  FROM (SELECT id FROM jobs WHERE status = 'pending' LIMIT 5) AS picked;\n",
    },
    [LINT_KEY_CHANGES] = {
        .name = "key-changes",
        .message = "the key is another one at every try, so that a retry is not recognised: make "
                   "it from what the work is about",
        .wrong = "INSERT INTO payments (order_id, idempotency_key)\n"
                 "VALUES ($1, 'pay-' || $1 || '-' || now())\n"
                 "ON CONFLICT (idempotency_key) DO NOTHING;\n",
        .right = "INSERT INTO payments (order_id, idempotency_key)\n"
                 "VALUES ($1, 'pay-' || $1)\n"
                 "ON CONFLICT (idempotency_key) DO NOTHING;\n",
    },
};
