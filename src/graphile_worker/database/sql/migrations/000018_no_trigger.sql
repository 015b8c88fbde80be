-- Revision 18: the functions that add and remove jobs notify themselves, so the trigger is dropped.

drop trigger if exists _900_after_insert on :GRAPHILE_WORKER_SCHEMA._private_jobs;
drop function if exists :GRAPHILE_WORKER_SCHEMA.tg_jobs__after_insert();
