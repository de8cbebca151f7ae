-- machine.sql - the machine's clock, and what its start ends.

-- name: machine_clock
SELECT boot, boot_us, at_us FROM weir_key_clock WHERE one = 1;

-- name: machine_clock_set
INSERT OR REPLACE INTO weir_key_clock (one, boot, boot_us, at_us) VALUES (1, ?1, ?2, ?3);

-- ?1: now. A lease that has ended keeps its holder, as one that expired does.
-- name: machine_end_targets
UPDATE weir_targets INDEXED BY weir_targets_leased
   SET lease_until = ?1
 WHERE holder IS NOT NULL AND lease_until > ?1;

-- name: machine_end_routers
UPDATE weir_reactions SET router_until = ?1 WHERE router_until > ?1;

-- name: machine_end_locks
UPDATE weir_locks SET lease_until = ?1 WHERE lease_until > ?1;

-- name: machine_end_workers
UPDATE weir_workers SET lease_until = ?1 WHERE lease_until > ?1;
