"""`-w/--watch`: a worker process that is started anew whenever its code changes.

The parent loads none of the code: it watches files (`files`, `changes`), keeps a child process (`child`) and
decides when to replace it (`reloader`). The child is the ordinary command and notices the parent's death
(`lifeline`). Starting a new process is the only way to be sure that no old module survives.
"""
