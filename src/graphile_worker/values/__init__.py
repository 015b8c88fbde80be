"""What the packages pass to each other: a job and its options, outcomes, payloads, the clock.

No module here knows a database, a worker or a client. Every package but `errors` may import it. Start in
`job` (a job that exists) and `spec` (a job to add); `options` has the options of a worker.
"""

__version__ = "1.0.0rc1"
