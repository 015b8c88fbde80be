"""Why jobs do not run: one decision for `graphile-worker show`, the doctor and the dashboard.

`facts` reads what is known. `decision` and `ready` decide, without a database. `values` has the result and
its words.
"""
