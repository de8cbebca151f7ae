-- route_functions.sql

-- name: route_functions
SELECT 1;
