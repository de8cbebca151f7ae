-- settle_functions.sql

-- name: settle_functions
SELECT 1;
