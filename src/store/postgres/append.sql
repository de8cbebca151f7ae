-- append.sql - appending, as the client says it: one statement each.

-- name: append
SELECT append_index, stream_index, status, replayed, first_version, last_version, position,
       expected, actual, other
  FROM weir.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17);

-- name: append_one
SELECT append_index, stream_index, status, replayed, first_version, last_version, position,
       expected, actual, other
  FROM weir.append_one($1, $2, $3, $4, $5, $6, $7, $8);

-- The first 17 as above; then heads. One row with heads and positions, or rows as above.
-- name: append_batch
SELECT append_index, stream_index, status, replayed, first_version, last_version, position,
       expected, actual, other, head_versions, event_ids
  FROM weir.append_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
                         $18, $19, $20, $21);

-- Inside a caller's transaction: no rows, and nothing done, when it has one snapshot for all.
-- name: append_in
SELECT append_index, stream_index, status, replayed, first_version, last_version, position,
       expected, actual, other
  FROM weir.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
 WHERE pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed';
