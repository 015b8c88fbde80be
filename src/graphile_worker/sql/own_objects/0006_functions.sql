-- Functions that an earlier version of this package installed are replaced by their present form, which calls nothing
-- but PostgreSQL's own functions and operators, whatever others create in `public`. Those of other runtimes stay. Which
-- files that takes depends on what is installed: see migrate/own_functions.py.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (6, 'functions')
on conflict (id) do nothing;
