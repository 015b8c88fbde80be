"""What is wrong with a database or a worker: facts, and what they mean.

`explanation/` says why a job does not run, for `graphile-worker show`, the doctor and the dashboard. `tasks`
and what is above it may import this package. Start in `examine` for the doctor, in `explanation` for a job.
"""
