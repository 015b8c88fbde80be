"""What has happened to jobs: records of finished jobs, errors, results, progress, statistics, the audit.

`recovery` and what is above it may import this package. Start in `records`, which reads;
`worker/write/recorder` decides what is written.
"""
