-- route.sql - routing, as the client asks for it (route_functions.sql).

-- name: route
SELECT weir.route($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
                  $16, $17, $18, $19, $20);
