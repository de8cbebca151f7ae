-- snapshot.sql - folded states of streams.

-- name: snapshot_put
INSERT INTO weir_snapshots (stream, version, revision, data) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (stream) DO UPDATE
SET version = excluded.version, revision = excluded.revision, data = excluded.data
WHERE excluded.version >= version OR excluded.revision <> revision;

-- name: snapshot_get
SELECT version, data FROM weir_snapshots WHERE stream = ?1 AND revision = ?2 AND version <= ?3;

-- A category is the names that are it, or begin with it and a '-' (the byte before '.').
-- name: snapshot_drop
DELETE FROM weir_snapshots
WHERE (?1 = '' OR stream = ?1 OR (stream >= ?1 || '-' AND stream < ?1 || '.')) AND revision <> ?2;
