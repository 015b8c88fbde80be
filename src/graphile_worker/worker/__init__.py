"""A worker pool: fetches jobs, runs them and writes their outcomes. Start reading in `pool`.

`pool` builds the parts and starts and stops them; `lanes` are groups of tasks with their own slots;
`shutdown` ends it. The rooms below it, each with one subject:

- `fetch/` locks jobs and gives them to slots.
- `held/` runs short jobs inside the transaction that fetched them.
- `run/` calls the task of a job and decides the outcome.
- `write/` writes outcomes.
- `control/` follows what operators want: pauses, cancelled jobs, commands.
- `session` has the connections of the pool, and the jobs that it has locked.

A room imports those below it only: pool, control, lanes, fetch and write, held, session, run. The import
contract in pyproject.toml has the exact order.
"""
