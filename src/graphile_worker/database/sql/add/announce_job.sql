-- Notify workers of one job that has been committed, as add_job does.
select pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1}')
