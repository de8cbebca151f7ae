-- seal.sql - the mark that tells a database file from any other (seal.c).

-- name: seal_read
SELECT
    mark,
    (SELECT rootpage FROM main.sqlite_schema WHERE type = 'table' AND name = 'weir_seal')
FROM weir_seal
WHERE one = 1;

-- name: seal_renew
UPDATE weir_seal SET mark = ?1 WHERE one = 1;

-- name: seal_epoch
UPDATE weir_store SET epoch = ?1 WHERE one = 1;
