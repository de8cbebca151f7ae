-- append_functions.sql

-- name: append_functions
SELECT 1;
