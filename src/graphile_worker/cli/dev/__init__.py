"""`graphile-worker dev`: its database, and where it shows what happens.

The worker process summarises its activity and reports it to its parent a few times a second (`feed`). The
parent adds counts from the database and draws the view (`render`). Only `render` knows the terminal.
"""
