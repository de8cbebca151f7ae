-- turn.sql - leases that end and others that begin, as a lane sends them (turn_functions.sql).

-- $1 to $3 the leases that end, $4 to $6 their advances; $7 to $16 as of lease.
-- name: turn
SELECT leased, leased_name, leased_fence, leased_token, leased_until, leased_watermark,
       leased_priority, leased_lost, kind, of_reaction, first_number, second_number, third_number,
       work_source, work_value
  FROM weir.turn($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16);
