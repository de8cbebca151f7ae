-- reactions.sql - reactions, their definitions and their routers' leases.

-- name: reaction_by_name
SELECT id, number, retired FROM weir_reactions WHERE name = ?1;

-- name: reaction_insert
INSERT INTO weir_reactions (name, number, since, routed) VALUES (?1, 1, ?2, ?2) RETURNING id;

-- The latest number under which a reaction had that definition.
-- name: definition_number
SELECT max(number)
  FROM weir_definitions
 WHERE reaction = ?1 AND names = ?2 AND source = ?3 AND rule = ?4 AND rule_text = ?5;

-- name: definition_insert
INSERT INTO weir_definitions (reaction, number, names, source, rule, rule_text)
VALUES (?1, ?6, ?2, ?3, ?4, ?5);

-- name: reaction_set_current
UPDATE weir_reactions SET number = ?2 WHERE id = ?1;

-- name: reaction_set_attempts
UPDATE weir_reactions SET attempts = ?2 WHERE id = ?1 AND number = ?3 AND attempts <> ?2;

-- name: reaction_set_retired
UPDATE weir_reactions SET retired = ?2 WHERE id = ?1;

-- name: reaction_targets
SELECT target FROM weir_subscriptions WHERE reaction = ?1 ORDER BY target;

-- name: reaction_load
SELECT r.id, r.name, r.number, r.since, r.routed, r.reread_to, r.retired, r.router, r.router_until,
       r.router_fence, d.names, d.source, d.rule, d.rule_text, r.attempts
  FROM weir_reactions AS r
  JOIN weir_definitions AS d ON d.reaction = r.id AND d.number = r.number
 WHERE r.id = ?1;

-- name: reaction_list
SELECT r.id, r.name, r.number, r.since, r.routed, r.reread_to, r.retired, r.router, r.router_until,
       r.router_fence, d.names, d.source, d.rule, d.rule_text, r.attempts
  FROM weir_reactions AS r
  JOIN weir_definitions AS d ON d.reaction = r.id AND d.number = r.number
 ORDER BY r.name;

-- name: router_read
SELECT router IS NOT NULL, router_until, router_fence, retired FROM weir_reactions WHERE id = ?1;

-- name: router_take
UPDATE weir_reactions SET router = ?2, router_until = ?3, router_fence = ?4 WHERE id = ?1;

-- name: router_give_back
UPDATE weir_reactions SET router = NULL, router_until = 0 WHERE id = ?1;
