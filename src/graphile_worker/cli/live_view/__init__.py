"""The live view of `graphile-worker dev`: what runs, what waits, how fast, and what went wrong.

The worker process sums up what happens in it (`activity`) and tells its parent a few times a second (`feed`).
The parent adds what the database says (`state`) and draws it (`render`). Only `render` knows the terminal.
"""
