-- append.sql - appending, as the client says it: one statement each.

-- name: append_one
SELECT status, version, position, created FROM weir.append_one($1, $2, $3, $4, $5, $6, $7, $8);

-- name: append_batch
SELECT head_versions, event_ids, created, refused_streams, refused_states, refused_versions
  FROM weir.append_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: append_any
SELECT append_index, stream_index, status, replayed, first_version, last_version, position, created,
       other
  FROM weir.append_any($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
                       $18, $19);

-- Inside a caller's transaction: no rows, and nothing done, when it has one snapshot for all.
-- name: append_in
SELECT append_index, stream_index, status, replayed, first_version, last_version, position, created,
       other
  FROM weir.append_any($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
                       $18, $19)
 WHERE pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed';
