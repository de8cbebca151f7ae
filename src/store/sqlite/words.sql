-- words.sql - what the statements of this directory have in common, each said once. `{word}` stands
-- for it in the other files (tools/embed_sql.py). Constants have the value that C gives them.

-- constant: rule_work 4

-- constant: once_running 1
-- constant: once_done 2
-- constant: once_failed 3

-- A target of a lane, ?1, that has something to do and that nobody holds back: at once; when its time
-- comes. These are the conditions of the indexes that leasing walks.
-- fragment: is_ready
behind = 1 AND held = 0 AND due IS NULL

-- fragment: has_due
behind = 1 AND held = 0 AND due IS NOT NULL

-- Nobody has its lease, at the time ?2.
-- fragment: is_free
(holder IS NULL OR lease_until <= ?2)

-- What leasing wants to know of it.
-- fragment: lease_columns
id, name, priority, watermark, rank, fence, lost, holder IS NOT NULL

-- An event of the log, with meta and data as the reader wants them (read.sql).
-- fragment: read_columns
e.id, e.version, e.created, s.name, e.name,
CASE WHEN ?4 THEN e.meta END, CASE WHEN ?5 THEN e.data END

-- The rest of an event that is fetched, with its data if its name may be wanted (fetch.sql).
-- fragment: fetch_columns
e.name, s.name, e.version, e.created, e.meta,
CASE WHEN e.name BETWEEN ?5 AND ?6 THEN e.data END
