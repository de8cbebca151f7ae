-- fetch.sql - the events of subscriptions, as the client asks for them (fetch_functions.sql).

-- name: fetch
SELECT item, event_id, event_version, event_created, event_stream, event_name, event_data,
       event_meta, judge
  FROM weir.fetch($1, $2, $3, $4, $5, $6, $7);

-- name: fetch_small
SELECT item, event_id, event_version, event_created, event_stream, event_name, event_data,
       event_meta, judge
  FROM weir.fetch_small($1, $2, $3, $4, $5, $6, $7);
