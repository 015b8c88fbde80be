-- The end of an installation: running workers are told of the last revision only. Telling them of the breaking
-- ones before it would stop the workers of other schemas in this database, for the channel is common to all.

select pg_notify('worker:migrate', '{"migrationNumber":20,"breaking":false}');
