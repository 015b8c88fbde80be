      and not exists (
        select from :GRAPHILE_WORKER_SCHEMA._private_py_schedule_pauses as pause
        where pause.identifier = due.identifier and (pause.until is null or pause.until > now())
      )
