-- schema_2.sql - from schema 1 to schema 2.

-- name: schema_2

-- One row. mark: changed before every checkpoint, and kept in the side file too, so that a database
-- file that was swapped is recognised (seal.c).
CREATE TABLE weir_seal (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    mark BLOB NOT NULL
) STRICT;

INSERT INTO weir_seal (one, mark) VALUES (1, randomblob(16));

-- At most one row: the machine's clock, by which leases and idempotency keys end. at_us is its time
-- when boottime of the machine, as started with this boot, was boot_us (machine.c).
CREATE TABLE weir_key_clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot TEXT NOT NULL,
    boot_us INTEGER NOT NULL,
    at_us INTEGER NOT NULL
) STRICT;
