"""The measurements of `graphile-worker bench`.

Each measured worker is a separate process (`worker_process`, `worker_main`), as in production, so that it
does not share the event loop of the measuring client. All of them use one scratch schema (`scratch`).
"""
