-- Give an older ledger the column that marks breaking revisions.
alter table :GRAPHILE_WORKER_SCHEMA.migrations add column if not exists breaking boolean not null default false
