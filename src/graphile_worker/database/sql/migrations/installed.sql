-- The end of an installation: notify running workers of the last revision only. Notifications of earlier, breaking ones
-- would stop workers of other schemas in this database, because they share the channel.

select pg_notify('worker:migrate', '{"migrationNumber":20,"breaking":false}');
