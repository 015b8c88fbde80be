-- Whether the schema is installed; needs no privilege on its tables.
--
-- $1 text  the qualified name of the jobs table
-- returns one row: is_installed
select pg_catalog.to_regclass($1::text) is not null as is_installed
