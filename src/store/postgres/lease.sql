-- lease.sql - leasing and polling, as the client asks for them (lease_functions.sql).

-- name: lease
SELECT leased, leased_name, leased_fence, leased_token, leased_until, leased_watermark,
       leased_priority, leased_lost, kind, of_reaction, first_number, second_number, third_number,
       work_source, work_value
  FROM weir.lease($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: poll
SELECT now_us, routed_least, is_ready, next_due, lease_end, router_end FROM weir.poll($1);
