-- settle.sql - what the holder of a lease sends. The functions: settle_functions.sql.
--
-- In a transaction with SQL of the caller's, names mean what they mean to the role (settle_begin), or
-- what that SQL has set. So every function and operator here is written with its schema.

-- $1 target, $2 fence, $3 token, $4 $5 advances, $6 to $9 parks, $10 parked events that were
-- handled, $11 to $14 the failure, $15 to $17 the end.
-- name: settle
SELECT s.lease_end, s.is_behind,
       coalesce(pg_catalog.current_setting('weir_settle.open', true), '')
           OPERATOR(pg_catalog.=) 'on'
  FROM weir.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) AS s;

-- $1 to $19 are the effects, as weir.append_any takes them; then as above.
-- name: settle_with
SELECT s.append_index, s.stream_index, s.status, s.replayed, s.first_version, s.last_version,
       s."position", s.created, s.other, s.lease_end, s.is_behind,
       coalesce(pg_catalog.current_setting('weir_settle.open', true), '')
           OPERATOR(pg_catalog.=) 'on'
  FROM weir.settle_with($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
                        $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32,
                        $33, $34, $35, $36) AS s;

-- The setting ends with the transaction: who finds it still there is in the same one. Not a
-- function of the store's, so it goes to the server as it stands.
-- name: settle_begin
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL search_path TO DEFAULT;
SELECT pg_catalog.set_config('weir_settle.open', 'on', true);

-- name: settle_commit
COMMIT;
SET SESSION search_path = pg_catalog, pg_temp;

-- name: settle_commit_pooled
COMMIT;

-- name: fenced
SELECT f.status, f.lease_end FROM weir.fenced($1, $2, $3, $4) AS f;
