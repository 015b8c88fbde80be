-- Tell the database what a test's clock says.
--
-- $1 timestamptz  the time
insert into :GRAPHILE_WORKER_SCHEMA._private_py_testing_clock (now) values ($1)
on conflict (only_one) do update set now = excluded.now
