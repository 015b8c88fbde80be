-- Add the column that marks breaking revisions to an older ledger.
alter table :GRAPHILE_WORKER_SCHEMA.migrations add column if not exists breaking boolean not null default false
