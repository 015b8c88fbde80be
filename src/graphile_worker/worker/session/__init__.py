"""The connections of a pool, the jobs that it has locked, and how far it has read. Start in `session`."""
