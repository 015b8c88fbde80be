"""`-w/--watch`: a worker process that is restarted whenever its code changes.

The parent imports none of the code: it watches files (`files`, `changes`), runs a child process (`child`) and
decides when to replace it (`reloader`). The child is the ordinary command. Only a new process guarantees
that no old module survives.
"""
