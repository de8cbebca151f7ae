-- snapshot.sql - folded states of streams. The functions: operate_functions.sql.

-- name: snapshot_put
SELECT weir.snapshot_put($1, $2, $3, $4);

-- name: snapshot_get
SELECT k.version, k.data
  FROM weir.snapshots AS k
 WHERE k.stream = $1 AND k.revision = $2 AND k.version <= $3;

-- name: snapshot_drop
SELECT weir.snapshot_drop($1, $2);
