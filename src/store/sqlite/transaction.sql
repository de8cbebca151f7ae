-- transaction.sql - what every transaction begins and ends with.

-- The store's own row, and the end of the log, whose time counts as well.
-- name: store_row
SELECT
    schema,
    clock_us,
    position_base,
    version_base,
    (SELECT max(id) FROM weir_events),
    (SELECT created FROM weir_events ORDER BY id DESC LIMIT 1),
    epoch
FROM weir_store
WHERE one = 1;

-- name: store_clock
UPDATE weir_store SET clock_us = ?1 WHERE one = 1 AND clock_us < ?1;
