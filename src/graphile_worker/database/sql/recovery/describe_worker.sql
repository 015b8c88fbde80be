-- Say more about a worker pool that is registered, and note that its version of the application was started. Needs
-- own_objects/0019_requests.
--
-- $1 text  pool id
-- $2 text  version of the application, or null
-- $3 text  its lanes (JSON)
-- A start belongs to the latest deploy if the version is the same, or to one a few minutes ago: while workers are
-- replaced, old and new ones may start in turns.
with
described as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_workers
  set app_version = $2::text, lanes = $3::text::jsonb
  where id = $1::text
),
latest as materialized (
  select id, version from :GRAPHILE_WORKER_SCHEMA._private_py_deploys order by id desc limit 1
),
known as materialized (
  select deploy.id
  from :GRAPHILE_WORKER_SCHEMA._private_py_deploys deploy
  where deploy.version = $2::text
    and (deploy.last_started_at > now() - interval '15 minutes' or deploy.id = (select latest.id from latest))
  order by deploy.id desc
  limit 1
),
continued as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_deploys deploy
  set last_started_at = now(), starts = deploy.starts + 1
  from known
  where deploy.id = known.id
),
added as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_deploys (version)
  select $2::text
  where $2::text is not null and not exists (select from known)
),
purged as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_deploys deploy
  where deploy.id <= (
    select kept.id from :GRAPHILE_WORKER_SCHEMA._private_py_deploys kept order by kept.id desc offset 500 limit 1
  )
),
unasked as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_requests request
  where not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_py_workers worker where worker.id = request.pool_id
  )
)
select count(*) from latest
