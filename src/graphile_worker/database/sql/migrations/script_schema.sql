-- A role that may not create schemas can use one that was prepared for it.
do $body$
begin
    create schema if not exists :GRAPHILE_WORKER_SCHEMA;
exception
    when insufficient_privilege then
        null;
end;
$body$;
