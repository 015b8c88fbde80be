-- The fetch function of own_objects/limits.sql for workers that take jobs by their flags: one of the accepted flags, or only
-- flags of an allowlist. A function of its own, so that other workers do not pay for these rules.
--
-- It includes parts of other fetches. If one of them changes, this file needs a new number;
-- tests/migrations/test_mended_objects.py notices.
create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_get_limited_jobs_by_flags(
    pool_id text,
    task_ids text, -- an array literal such as {1,2}
    wanted integer,
    flag_rules text[], -- three array literals: see the part flag_rules@routed
:include limited_jobs_function
