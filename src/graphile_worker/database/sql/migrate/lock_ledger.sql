-- Let no other runtime begin a migration before this transaction has ended: each inserts its row first. Rust's creates
-- some of the objects that ours create, too.
lock table :GRAPHILE_WORKER_SCHEMA.migrations in share mode
