"""A WSGI application with a client that is shared by all its requests: `/` adds a job."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from graphile_worker import make_sync_worker_utils

utils = make_sync_worker_utils(connection_string=os.environ["DATABASE_URL"])
utils.add_job("loaded", {"pid": os.getpid()})  # so that the client is open when gunicorn forks


def application(environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
    job = utils.add_job("request", {"pid": os.getpid()})
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"job": job.id, "pid": os.getpid()}).encode()]
