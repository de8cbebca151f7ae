-- targets_schema.sql - reactions, targets, subscriptions: the part of schema 1 that workers use.
--
-- Positions are ids of weir.events, times are microseconds of the store's clock (weir.clock_us()).
-- Rows of reactions, targets and lanes are never deleted: fences and definition numbers must not
-- start again. A target's row guards its subscriptions, work rows and parked events: whoever
-- changes those has locked it, in a statement of its own, before looking.

-- name: targets_schema
CREATE TABLE weir.reactions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    number bigint NOT NULL,                 -- of the current definition
    since bigint NOT NULL,                  -- where it began, for ever
    routed bigint NOT NULL,                 -- everything up to here was routed
    reread_to bigint NOT NULL DEFAULT 0,    -- above routed: reset subscriptions are routed again
    retired boolean NOT NULL DEFAULT false,
    router text,                            -- holder of the router's lease; NULL: given back
    router_until bigint NOT NULL DEFAULT 0,
    router_fence bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Every definition a reaction ever had. One that is made current again gets a new number.
CREATE TABLE weir.definitions (
    reaction bigint NOT NULL,
    number bigint NOT NULL,
    names text[] COLLATE "C",               -- in bytewise order; NULL: all that do not start with $
    source text COLLATE "C" NOT NULL,       -- pattern
    rule integer NOT NULL,                  -- store_rule
    rule_text text COLLATE "C" NOT NULL,
    PRIMARY KEY (reaction, number)
);

-- behind, watermark, rank and priority are derived from the subscriptions (weir.derive); rank is
-- the watermark without its last five bits, so that it changes less often; held = blocked or paused.
-- fillfactor 70: with 100 one lease in twenty found no room on its page and moved its index
-- entries, with 70 none did. autovacuum: entries of targets that left an index are stepped over
-- until a vacuum; one in fifty of them is early enough, one in five (the default) is not
-- (README.md, Leasing).
CREATE TABLE weir.targets (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    lane text COLLATE "C" NOT NULL,
    priority bigint NOT NULL DEFAULT 0,
    override bigint,                        -- priority set by an operator
    watermark bigint NOT NULL DEFAULT 0,
    rank bigint NOT NULL DEFAULT 0,
    behind boolean NOT NULL DEFAULT false,
    held boolean NOT NULL DEFAULT false,
    due bigint,                             -- deferred until
    fence bigint NOT NULL DEFAULT 0,
    holder text,                            -- of the lease, expired or not; NULL: nobody
    lease_until bigint NOT NULL DEFAULT 0,
    lost bigint NOT NULL DEFAULT 0,         -- leases in a row that expired
    blocked bigint,                         -- since when
    paused boolean NOT NULL DEFAULT false,
    paused_by text NOT NULL DEFAULT '',
    error text NOT NULL DEFAULT '',         -- of the last failure, with event, reaction, attempts
    event bigint NOT NULL DEFAULT 0,
    reaction bigint NOT NULL DEFAULT 0,
    attempts bigint NOT NULL DEFAULT 0
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000
);

-- A target that can be leased is in the first two, one that waits for its time in the third. What
-- is blocked, paused or has no work is in none, so leasing never steps over it. Lease columns are
-- in no index: taking a lease is a HOT update, live leases are few, and a filter skips them.
CREATE INDEX targets_priority ON weir.targets (lane, priority DESC, rank, id)
    WHERE behind AND NOT held AND due IS NULL;
CREATE INDEX targets_rank ON weir.targets (lane, rank, id)
    WHERE behind AND NOT held AND due IS NULL;
CREATE INDEX targets_due ON weir.targets (lane, due, id)
    WHERE behind AND NOT held AND due IS NOT NULL;
CREATE INDEX targets_blocked ON weir.targets (name) WHERE blocked IS NOT NULL;

CREATE TABLE weir.subscriptions (
    target bigint NOT NULL,
    reaction bigint NOT NULL,
    at bigint NOT NULL,                     -- last handled
    mark bigint NOT NULL,                   -- last that is known to be for it; never below at
    retries bigint NOT NULL DEFAULT 0,
    priority bigint NOT NULL,
    source text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,        -- what the rule was resolved to
    was_reset boolean NOT NULL DEFAULT false, -- gets work rows while its reaction is re-read
    PRIMARY KEY (target, reaction)
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000
);
CREATE INDEX subscriptions_value ON weir.subscriptions (reaction, value);
CREATE INDEX subscriptions_reset ON weir.subscriptions (reaction) WHERE was_reset;

-- Events of targets that no index finds: one row for each, written by the router.
CREATE TABLE weir.work (
    target bigint NOT NULL,
    reaction bigint NOT NULL,
    event bigint NOT NULL,
    PRIMARY KEY (target, reaction, event)
);
CREATE INDEX work_event ON weir.work (reaction, event);

-- Dead letters.
CREATE TABLE weir.parked (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reaction bigint NOT NULL,
    target bigint NOT NULL,                 -- 0: parked while routing
    event bigint NOT NULL,
    attempts bigint NOT NULL,
    parked bigint NOT NULL,
    error text NOT NULL,
    sent_back boolean NOT NULL DEFAULT false,
    UNIQUE (target, reaction, event)
);
CREATE INDEX parked_sent_back ON weir.parked (target, event, reaction) WHERE sent_back;
CREATE INDEX parked_reaction ON weir.parked (reaction, id);

-- Every lane that has a target or was paused.
CREATE TABLE weir.lanes (
    lane text COLLATE "C" PRIMARY KEY,
    paused boolean NOT NULL DEFAULT false,
    paused_by text NOT NULL DEFAULT ''
);

-- Who works, and who ended within the last hour. A hint: nothing else refers to it. The first
-- stores of schema 1 were made without it; it is added when they are opened.
-- name: workers_schema
CREATE TABLE weir.workers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    host text NOT NULL,
    pid bigint NOT NULL,
    lanes text[] COLLATE "C" NOT NULL,
    reactions bigint[] NOT NULL,            -- what it can handle, and
    numbers bigint[] NOT NULL,              -- in which definitions
    since bigint NOT NULL,
    lease_until bigint NOT NULL,
    draining boolean NOT NULL
) WITH (fillfactor = 50);

-- What they count, and how many attempts an event of a reaction gets (0: no limit); for people to
-- read. Stores of schema 1 were made without these, too.
-- name: counts_schema
ALTER TABLE weir.workers ADD COLUMN metrics text NOT NULL DEFAULT '';
ALTER TABLE weir.reactions ADD COLUMN attempts bigint NOT NULL DEFAULT 0;

-- Named locks, while somebody has them, and keys of once, for ever. state: 0 nobody's (inside a
-- transaction alone), 1 held or running, 2 done, 3 failed. lease_until 0: held by other means than a
-- lease. A lock's row goes when it is released, so fences are one sequence of the store; CACHE 1: a
-- backend that kept some back would hand them out long after later ones. Stores of schema 1 were
-- made without these, too.
-- name: locks_schema
CREATE SEQUENCE weir.lock_fences AS bigint CACHE 1;
CREATE TABLE weir.locks (
    once boolean NOT NULL,
    name text COLLATE "C" NOT NULL,
    holder text NOT NULL DEFAULT '',
    fence bigint NOT NULL DEFAULT 0,
    since bigint NOT NULL DEFAULT 0,
    lease_until bigint NOT NULL DEFAULT 0,
    state integer NOT NULL DEFAULT 0,
    exit_status bigint NOT NULL DEFAULT 0,
    ended bigint NOT NULL DEFAULT 0,
    output bytea NOT NULL DEFAULT '',
    PRIMARY KEY (once, name)
) WITH (fillfactor = 50);
