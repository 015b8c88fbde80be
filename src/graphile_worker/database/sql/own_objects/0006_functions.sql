-- Replaces functions that an earlier version of this package installed. Their current form calls only PostgreSQL's own
-- functions and operators, whatever other roles create in `public`. Functions of other runtimes stay. The files depend on
-- what is installed: see database/migrations/own_functions.py.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (6, 'functions')
on conflict (id) do nothing;
