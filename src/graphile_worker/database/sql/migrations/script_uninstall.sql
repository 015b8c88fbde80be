-- Drop the schema, unless there are jobs in it.
do $graphile_worker_script$
begin
    if exists (select from :GRAPHILE_WORKER_SCHEMA._private_jobs) then
        raise exception 'there are jobs' using errcode = 'GWJOB';
    end if;
exception
    when invalid_schema_name or undefined_table then
        null;
end;
$graphile_worker_script$;

drop schema if exists :GRAPHILE_WORKER_SCHEMA cascade;
