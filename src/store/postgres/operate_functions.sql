-- operate_functions.sql

-- name: operate_functions
SELECT 1;
