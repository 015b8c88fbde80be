-- The server and the session, for the doctor.
-- Returns one row: server_version (integer), version (text), role, database, is_superuser, is_standby, is_read_only,
-- isolation, idle_session_timeout (seconds, null before PostgreSQL 14), autovacuum, track_counts, fsync, full_page_writes,
-- connections (in use), max_connections, notification_queue (share that is full), schemas (text[], in the order of search_path).
select
    pg_catalog.current_setting('server_version_num')::integer as server_version,
    pg_catalog.current_setting('server_version') as version,
    current_user::text as role,
    current_database()::text as database,
    coalesce((select rolsuper from pg_catalog.pg_roles where rolname = current_user), false) as is_superuser,
    pg_is_in_recovery() as is_standby,
    pg_catalog.current_setting('default_transaction_read_only')::boolean as is_read_only,
    pg_catalog.current_setting('default_transaction_isolation') as isolation,
    (
        select extract(epoch from (setting || unit)::interval)::double precision
        from pg_catalog.pg_settings
        where name = 'idle_session_timeout'
    ) as idle_session_timeout,
    pg_catalog.current_setting('autovacuum')::boolean as autovacuum,
    pg_catalog.current_setting('track_counts')::boolean as track_counts,
    pg_catalog.current_setting('fsync')::boolean as fsync,
    pg_catalog.current_setting('full_page_writes')::boolean as full_page_writes,
    (select count(*)::integer from pg_catalog.pg_stat_activity where backend_type = 'client backend') as connections,
    pg_catalog.current_setting('max_connections')::integer as max_connections,
    pg_notification_queue_usage() as notification_queue,
    current_schemas(true)::text[] as schemas
