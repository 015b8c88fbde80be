-- The server, the database and the role of this connection.
-- Returns version, database, role.
select
  pg_catalog.current_setting('server_version') as version,
  current_database()::text as database,
  current_user::text as role
