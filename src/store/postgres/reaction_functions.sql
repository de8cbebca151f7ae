-- reaction_functions.sql

-- name: reaction_functions
SELECT 1;
