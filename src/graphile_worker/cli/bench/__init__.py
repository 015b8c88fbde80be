"""The measurements behind `graphile-worker bench`: what is run, how it is timed, how it is shown.

Every worker that is measured is a process of its own (`worker_process`, `worker_main`), as in production, so
that the measuring client does not share its event loop. All of them use one scratch schema (`scratch`).
"""
