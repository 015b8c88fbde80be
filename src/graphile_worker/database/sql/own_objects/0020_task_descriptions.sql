-- What workers say about their tasks, and which flags each pool forbids. Written when a worker starts.

-- One row for each task that has something to say, as the worker that started last has it.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_task_descriptions (
    identifier text not null,
    runbook text, -- address of a page that says what to do when its jobs fail
    owner text, -- person or team
    payload_type text, -- the annotation, as text; null for any JSON
    payload_schema json, -- JSON Schema of the payload; null if it cannot be expressed, or is long
    described_at timestamptz not null default now(),
    constraint _private_py_task_descriptions_pkey primary key (identifier)
);

alter table :GRAPHILE_WORKER_SCHEMA._private_py_task_descriptions enable row level security;

alter table :GRAPHILE_WORKER_SCHEMA._private_py_workers
add column if not exists forbidden_flags text[]; -- null if they may change, or if the pool does not say

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (20, 'task_descriptions')
on conflict (id) do nothing;
