-- targets_schema.sql - reactions, targets, subscriptions: the part of schema 1 that workers use.
--
-- Positions are ids of weir_events, times are microseconds of the store's clock, but lease_until and
-- router_until are of the machine's (machine.c); flags are 0 or 1.
-- Rows of weir_reactions, weir_targets and weir_lanes are never deleted: fences and definition
-- numbers must not start again.

-- name: targets_schema
CREATE TABLE weir_reactions (
    id           INTEGER PRIMARY KEY,
    name         TEXT    NOT NULL UNIQUE,
    number       INTEGER NOT NULL,           -- of the current definition
    since        INTEGER NOT NULL,           -- where it began, for ever
    routed       INTEGER NOT NULL,           -- everything up to here was routed
    reread_to    INTEGER NOT NULL DEFAULT 0, -- above routed: reset subscriptions are routed again
    retired      INTEGER NOT NULL DEFAULT 0,
    router       TEXT,                       -- holder of the router's lease; NULL: given back
    router_until INTEGER NOT NULL DEFAULT 0,
    router_fence INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Every definition a reaction ever had. One that is made current again gets a new number.
CREATE TABLE weir_definitions (
    reaction  INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    names     TEXT    NOT NULL, -- JSON: in bytewise order, or true: all that do not start with $
    source    TEXT    NOT NULL, -- pattern
    rule      INTEGER NOT NULL, -- store_rule
    rule_text TEXT    NOT NULL,
    PRIMARY KEY (reaction, number)
) STRICT, WITHOUT ROWID;

-- behind, watermark, rank and priority are derived from the subscriptions (derive.sql); rank is the
-- watermark without its last five bits, so that it changes less often; held = blocked or paused.
CREATE TABLE weir_targets (
    id          INTEGER PRIMARY KEY,
    name        TEXT    NOT NULL UNIQUE,
    lane        TEXT    NOT NULL,
    priority    INTEGER NOT NULL DEFAULT 0,
    override    INTEGER,                    -- priority set by an operator
    watermark   INTEGER NOT NULL DEFAULT 0,
    rank        INTEGER NOT NULL DEFAULT 0,
    behind      INTEGER NOT NULL DEFAULT 0,
    held        INTEGER NOT NULL DEFAULT 0,
    due         INTEGER,                    -- deferred until
    fence       INTEGER NOT NULL DEFAULT 0,
    holder      TEXT,                       -- of the lease, expired or not; NULL: nobody
    lease_until INTEGER NOT NULL DEFAULT 0,
    lost        INTEGER NOT NULL DEFAULT 0, -- leases in a row that expired
    blocked     INTEGER,                    -- since when
    paused      INTEGER NOT NULL DEFAULT 0,
    paused_by   TEXT    NOT NULL DEFAULT '',
    error       TEXT    NOT NULL DEFAULT '', -- of the last failure, with event, reaction, attempts
    event       INTEGER NOT NULL DEFAULT 0,
    reaction    INTEGER NOT NULL DEFAULT 0,
    attempts    INTEGER NOT NULL DEFAULT 0
) STRICT;

-- A target that can be leased is in the first two, one that waits for its time in the third. What
-- is blocked, paused or has no work is in none, so leasing never steps over it. A lease moves
-- nothing in them: live leases are few, and a filter skips them.
CREATE INDEX weir_targets_priority ON weir_targets (lane, priority DESC, rank, id)
    WHERE behind = 1 AND held = 0 AND due IS NULL;
CREATE INDEX weir_targets_rank ON weir_targets (lane, rank, id)
    WHERE behind = 1 AND held = 0 AND due IS NULL;
CREATE INDEX weir_targets_due ON weir_targets (lane, due, id)
    WHERE behind = 1 AND held = 0 AND due IS NOT NULL;
-- Who sleeps needs the earliest end of a lease, and who operates the blocked targets, without
-- reading a million others. Both hold only the few rows they are about.
CREATE INDEX weir_targets_leased ON weir_targets (lane, lease_until) WHERE holder IS NOT NULL;
CREATE INDEX weir_targets_blocked ON weir_targets (name) WHERE blocked IS NOT NULL;

CREATE TABLE weir_subscriptions (
    target    INTEGER NOT NULL,
    reaction  INTEGER NOT NULL,
    at        INTEGER NOT NULL,           -- last handled
    mark      INTEGER NOT NULL,           -- last that is known to be for it; never below at
    retries   INTEGER NOT NULL DEFAULT 0,
    priority  INTEGER NOT NULL,
    source    TEXT    NOT NULL,
    value     TEXT    NOT NULL,           -- what the rule was resolved to
    was_reset INTEGER NOT NULL DEFAULT 0, -- gets work rows while its reaction is re-read
    PRIMARY KEY (target, reaction)
) STRICT, WITHOUT ROWID;
CREATE INDEX weir_subscriptions_value ON weir_subscriptions (reaction, value);
CREATE INDEX weir_subscriptions_reset ON weir_subscriptions (reaction) WHERE was_reset = 1;

-- Events of targets that no index finds: one row for each, written by the router.
CREATE TABLE weir_work (
    target   INTEGER NOT NULL,
    reaction INTEGER NOT NULL,
    event    INTEGER NOT NULL,
    PRIMARY KEY (target, reaction, event)
) STRICT, WITHOUT ROWID;
CREATE INDEX weir_work_event ON weir_work (reaction, event);

-- Dead letters. Ids are never used again, so that a list can be paged while rows go.
CREATE TABLE weir_parked (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    reaction  INTEGER NOT NULL,
    target    INTEGER NOT NULL, -- 0: parked while routing
    event     INTEGER NOT NULL,
    attempts  INTEGER NOT NULL,
    parked    INTEGER NOT NULL,
    error     TEXT    NOT NULL,
    sent_back INTEGER NOT NULL DEFAULT 0,
    UNIQUE (target, reaction, event)
) STRICT;
CREATE INDEX weir_parked_sent_back ON weir_parked (target, event, reaction) WHERE sent_back = 1;
CREATE INDEX weir_parked_reaction ON weir_parked (reaction);

-- Every lane that has a target or was paused.
CREATE TABLE weir_lanes (
    lane      TEXT    PRIMARY KEY,
    paused    INTEGER NOT NULL DEFAULT 0,
    paused_by TEXT    NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

-- Who works, and who ended within the last hour. A hint: nothing else refers to it. The first
-- stores of schema 1 were made without it; it is added when they are opened.
-- name: workers_schema
CREATE TABLE weir_workers (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT    NOT NULL UNIQUE,
    host        TEXT    NOT NULL,
    pid         INTEGER NOT NULL,
    lanes       TEXT    NOT NULL, -- JSON: names
    known       TEXT    NOT NULL, -- JSON: reaction, number of its definition, reaction, ...
    since       INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    draining    INTEGER NOT NULL
) STRICT;

-- What they count, and how many attempts an event of a reaction gets (0: no limit); for people to
-- read. Stores of schema 1 were made without these, too.
-- name: counts_schema
ALTER TABLE weir_workers ADD COLUMN metrics TEXT NOT NULL DEFAULT '';
ALTER TABLE weir_reactions ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;

-- Named locks (once = 0), while somebody has them, and keys of once, for ever. state: 1 held or
-- running, 2 done, 3 failed. lease_until 0: held by other means than a lease. A row is replaced when
-- it is taken; AUTOINCREMENT never gives a fence twice, whatever rows there are. Stores of schema 1
-- were made without it, too.
-- name: locks_schema
CREATE TABLE weir_locks (
    fence       INTEGER PRIMARY KEY AUTOINCREMENT,
    once        INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    holder      TEXT    NOT NULL,
    since       INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    state       INTEGER NOT NULL DEFAULT 1,
    exit_status INTEGER NOT NULL DEFAULT 0,
    ended       INTEGER NOT NULL DEFAULT 0,
    output      BLOB    NOT NULL DEFAULT x'',
    UNIQUE (once, name)
) STRICT;
