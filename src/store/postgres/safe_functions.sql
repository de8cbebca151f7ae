-- safe_functions.sql

-- name: safe_functions
SELECT 1;
