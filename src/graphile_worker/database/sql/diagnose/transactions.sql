-- What keeps vacuum from removing dead rows of this database, for the doctor.
-- $1 minimum age in seconds.
-- Returns kind (session, prepared transaction or replication slot), name (process id, its name), what (whose, which
-- application, and its state) and age in seconds, null for slots.
select
    'session' as kind,
    pid::text as name,
    pg_catalog.concat_ws(', ', usename, nullif(application_name, ''), state) as what,
    extract(epoch from now() - xact_start)::double precision as age
from pg_catalog.pg_stat_activity
where datname = current_database()
and pid <> pg_backend_pid()
and xact_start < now() - $1::double precision * interval '1 second'
and (backend_xid is not null or backend_xmin is not null)
and backend_type = 'client backend'
union all
select 'prepared transaction', gid, owner::text, extract(epoch from now() - prepared)::double precision
from pg_catalog.pg_prepared_xacts
where database = current_database() and prepared < now() - $1::double precision * interval '1 second'
union all
select 'replication slot', slot_name::text, case when active then 'active' else 'not in use' end, null
from pg_catalog.pg_replication_slots
where xmin is not null and not active
order by age desc nulls last
limit 20
