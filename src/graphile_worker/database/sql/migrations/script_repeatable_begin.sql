-- Graphile Worker, revision 20: the whole schema, inside the transaction of a migration tool.
--
-- It may be run again: a schema that exists gets the Python-only objects that it lacks. Statements for a schema
-- of an older revision are not in here; use `graphile-worker migrate` for that.

do $graphile_worker_script$
declare
    found integer;
begin
    begin
        select migrations.id into found
        from :GRAPHILE_WORKER_SCHEMA.migrations
        order by migrations.id desc
        limit 1;
    exception
        when invalid_schema_name or undefined_table then
            found := null;
    end;
    if found is null then
        execute $graphile_worker_baseline$
