-- Rules about a row of the jobs table, `job`.

-- part: job_columns
    -- All columns of a job in the order of Job's fields, except the task identifier.
    job.id,
    job.payload::text as payload,
    job.priority,
    date_part('epoch', job.run_at) as run_at,
    job.attempts,
    job.max_attempts,
    job.last_error,
    date_part('epoch', job.created_at) as created_at,
    date_part('epoch', job.updated_at) as updated_at,
    job.key,
    date_part('epoch', job.locked_at) as locked_at,
    job.revision,
    job.flags::text as flags,
    job.task_id,
    job.job_queue_id,
    job.locked_by

-- part: task_identifier
    -- After `job_columns`: the identifier of the job's task.
    , coalesce((
        select tasks.identifier
        from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
        where tasks.id = job.task_id
    ), '') as task_identifier

-- part: taken_columns
  -- The columns of a fetched job, in the order of Job's fields. As few as possible, for there are tens of thousands per
  -- second: the worker knows the pool's id and the task's identifier.
  id, payload::text, priority, date_part('epoch', run_at), attempts, max_attempts, last_error,
  date_part('epoch', nullif(created_at, run_at)), date_part('epoch', nullif(updated_at, created_at)), -- usually equal
  key, date_part('epoch', locked_at), revision, flags::text, task_id, job_queue_id

-- part: flag_rules
  -- Whether `job` has none of the forbidden flags. $4 text[]: these flags, or null.
  and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])

-- part: flag_rules@routed
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )

-- part: queue_name
  -- The name of the queue of `job`, for tracks that of their home; most jobs have none.
  case
    when job.job_queue_id is not null
      then (
        select pg_catalog.regexp_replace(queue.queue_name, ' \[[1-9][0-9]*\]$', '') from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
        where queue.id = job.job_queue_id
      )
  end

-- part: back_off
-- Seconds between a failed attempt of `job` and the next one: e to the power of the attempts made, 10 at most. The function
-- `back_off` of values/attempts.py must be equal; tests/queries/test_write.py compares them. `standing` derives the
-- time of a failure from it, also of jobs that failed with an earlier formula.
cross join lateral (select exp(least(job.attempts, 10)::double precision) as seconds) as back_off

-- part: standing
-- The state of `job`, and when it failed permanently, in seconds since 1970; needs `back_off`.
--
-- Workers do not touch updated_at: the time of a failure is run_at minus the back-off. If that is in the future, the job was
-- failed by hand, which sets updated_at. In seconds, because arithmetic with times at the edge of PostgreSQL's range fails.
cross join lateral (
  select
    case
      when job.locked_at is not null then 'running'
      when not job.is_available then 'failed'
      when job.run_at > now() then 'scheduled'
      else 'ready'
    end as state,
    case
      when not job.is_available and job.locked_at is null
      then greatest(
        date_part('epoch', job.updated_at),
        case
          when date_part('epoch', job.run_at) - back_off.seconds <= date_part('epoch', now())
          then date_part('epoch', job.run_at) - back_off.seconds
        end
      )
    end as failed_at
) as standing

-- part: cut_off
  -- Whether the key of a running `job` was removed or used again: then it has no attempts left and does not run again.
  (
    job.key is null and job.attempts >= job.max_attempts and job.updated_at > job.locked_at
    and job.updated_at > job.created_at
  )

-- part: attempts_returned
    -- A job that was replaced by its key does not come back (see recover_jobs).
    attempts = case
      when
:include cut_off
      then job.attempts
      else greatest(0, job.attempts - 1)
    end,

-- part: retired
  -- Whether a locked `job` is obsolete, because its key was removed or reused: cut off, but without jobs that were given up by
  -- hand, which is possible four hours after the lock, and without batches: the items of one whose key was used again are in
  -- no other job, if the functions are Node's.
  (
:include cut_off
    and job.updated_at < job.locked_at + interval '4 hours'
    and json_typeof(job.payload) <> 'array'
  )

-- part: served
-- In the variants of a statement, a condition that an index serves: in a generic plan, one that depends on a parameter cannot
-- use a partial index. The conditions on the state are those of `standing`.

-- part: served@ready
and job.is_available = true and job.run_at <= now()

-- part: served@scheduled
and job.is_available = true and job.run_at > now()

-- part: served@running
and job.locked_at is not null

-- part: served@failed
-- The condition of the index of failed jobs (own_objects/job_indexes).
and not job.is_available and job.locked_at is null

-- part: served@keyed
and job.key = $4::text

-- part: matching_jobs
-- The conditions of a JobFilter on `job`; needs `standing`. $2 to $25 are JobFilter.values, and $26 the state; null means any.
-- $2 task identifier, $3 queue name, $4 job key, $5 pool id that has locked the job, $6 flag, $7 part of the last error,
-- $8 and $9 created_at from and before, $10 and $11 the same for the time of the permanent failure.
and ($2::text is null or job.task_id = (
    select named.id from :GRAPHILE_WORKER_SCHEMA._private_tasks as named where named.identifier = $2::text
))
and ($3::text is null or job.job_queue_id = any(array(
    select named.id from :GRAPHILE_WORKER_SCHEMA._private_job_queues as named
    where named.queue_name = $3::text
    or pg_catalog.regexp_replace(named.queue_name, ' \[[1-9][0-9]*\]$', '') = $3::text -- a track of the queue
)))
and ($4::text is null or job.key = $4::text)
and ($5::text is null or job.locked_by = $5::text)
and ($6::text is null or job.flags ? $6::text)
and ($7::text is null or pg_catalog.strpos(lower(job.last_error), lower($7::text)) > 0)
and ($8::timestamptz is null or job.created_at >= $8::timestamptz)
and ($9::timestamptz is null or job.created_at < $9::timestamptz)
and ($10::timestamptz is null or standing.failed_at >= date_part('epoch', $10::timestamptz))
and ($11::timestamptz is null or standing.failed_at < date_part('epoch', $11::timestamptz))
-- $12 and $13 the first and last id, $14 and $15 priority, $16 and $17 attempts; $18 and $19 run_at from and before.
and ($12::bigint is null or job.id >= $12::bigint)
and ($13::bigint is null or job.id <= $13::bigint)
and ($14::smallint is null or job.priority >= $14::smallint)
and ($15::smallint is null or job.priority <= $15::smallint)
and ($16::smallint is null or job.attempts >= $16::smallint)
and ($17::smallint is null or job.attempts <= $17::smallint)
and ($18::timestamptz is null or job.run_at >= $18::timestamptz)
and ($19::timestamptz is null or job.run_at < $19::timestamptz)
-- $20 a part of the task identifier, of the job key or of the last error; $21 the beginning of the job key.
and (
    $20::text is null
    or job.task_id = any(array(
        select named.id from :GRAPHILE_WORKER_SCHEMA._private_tasks as named
        where pg_catalog.strpos(lower(named.identifier), lower($20::text)) > 0
    ))
    or pg_catalog.strpos(lower(job.key), lower($20::text)) > 0
    or pg_catalog.strpos(lower(job.last_error), lower($20::text)) > 0
)
and ($21::text is null or pg_catalog.starts_with(job.key, $21::text))
-- $22 as $7, and $23 as $20, in the last error without what looks like a secret: at least what
-- admin/security/redact.py hides.
and ($22::text is null and $23::text is null or (
    select
        ($22::text is null or pg_catalog.strpos(lower(redacted.last_error), lower($22::text)) > 0)
        and (
            $23::text is null
            or job.task_id = any(array(
                select named.id from :GRAPHILE_WORKER_SCHEMA._private_tasks as named
                where pg_catalog.strpos(lower(named.identifier), lower($23::text)) > 0
            ))
            or pg_catalog.strpos(lower(job.key), lower($23::text)) > 0
            or pg_catalog.strpos(lower(redacted.last_error), lower($23::text)) > 0
        )
    from (
        select
            pg_catalog.regexp_replace(
                pg_catalog.regexp_replace(
                    job.last_error,
                    '://[^[:space:]/?#:@]*(?::[^[:space:]@]+(?:@|\Z)|@)(?:[^[:space:]/?#@"''<>,;]*@)*', '://', 'g'
                ),
                '((?:authorization|cookie)[[:alnum:]_-]*\\{0,8}["'']?\]?[[:space:]]{0,8}!?[:=])[^\n]*'
                '|(-[[:alnum:]_-]*(?:pass[_-]?word|pass[_-]?wd|pass[_-]?phrase|pwd|secret|token|api[_-]?key|access[_-]?key'
                '|authorization|cookie|session|credential|private[_-]?key|jwt)[[:alnum:]_-]*[[:space:]]{1,8}'
                '|(?:pass[_-]?word|pass[_-]?wd|pass[_-]?phrase|pwd|secret|token|api[_-]?key|access[_-]?key'
                '|authorization|cookie|session|credential|private[_-]?key|jwt)[[:alnum:]_-]*'
                '(?:\\{0,8}["'']?\]?[[:space:]]{0,8}!?[:=]{1,3}>?|["''][[:space:]]{0,8},)[[:space:]]{0,8})'
                '(?:[bruf]{0,2}"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[bruf]{0,2}''(?:[^''\\]|\\.)*(?:''|\\?\Z)'
                '|\\{1,8}["''][^\n]*|[\[{(][^\n]*|[^[:space:],;&)}\]]+)',
                '\1\2', 'gi'
            )
        as last_error
    ) as redacted
))
-- $24 and $25: the member of the payload at each path, a JSON array of names, is the value, as text. Escapes that are no text
-- for PostgreSQL (NUL, halves of surrogate pairs) would be an error: such payloads do not match.
and ($24::text[] is null or not exists (
    select from unnest($24::text[], $25::text[]) as member (path, value)
    where case
        when pg_catalog.strpos(job.payload::text, '\u') > 0 and job.payload::text ~ (
            '\\u0000|\\u[dD][89aAbB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89aAbB]..)\\u[dD][c-fC-F]'
        ) then true
        else job.payload #>> array(
            select named.name from pg_catalog.json_array_elements_text(member.path::json) as named (name)
        ) is distinct from member.value
    end
))
and ($26::text is null or standing.state = $26::text)
