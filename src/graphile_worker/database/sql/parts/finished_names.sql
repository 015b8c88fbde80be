left join :GRAPHILE_WORKER_SCHEMA._private_py_task_names name on name.id = history.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = history.task_id
