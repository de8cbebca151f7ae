-- reactions.sql - reactions as the client asks for them. Event names come as one text, a name per
-- line (no name has a line break in it); NULL: all names.

-- name: declare
SELECT given, changed, id, name, number, since, routed, reread_to, retired, router, router_until,
       router_fence, names, source, rule, rule_text, attempts
  FROM weir.declare($1, $2, $3, $4, $5, $6, $7, $8);

-- name: reactions
SELECT 0::bigint, false, r.id, r.name, r.number, r.since, r.routed, r.reread_to, r.retired,
       coalesce(r.router, ''), r.router_until, r.router_fence,
       array_to_string(d.names, chr(10)), d.source, d.rule, d.rule_text, r.attempts
  FROM weir.reactions AS r
  JOIN weir.definitions AS d ON d.reaction = r.id AND d.number = r.number
 ORDER BY r.name;

-- name: retire
SELECT weir.retire($1);

-- name: router_lease
SELECT fence, until FROM weir.router_lease($1, $2, $3, $4);
