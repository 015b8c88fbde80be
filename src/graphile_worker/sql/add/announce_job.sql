-- Tell workers of one job that was committed before, as add_job does.
select pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1}')
