-- lease_functions.sql

-- name: lease_functions
SELECT 1;
