"""A worker process that is restarted whenever its code changes.

The parent watches files (`files`, `changes`), runs a child process (`child`) and decides when to replace it
(`reloader`). The child is the ordinary command, or the program that called `serve`. Only a new process
guarantees that no old module survives.
"""
