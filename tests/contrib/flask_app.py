"""A Flask application for gunicorn: `/` adds a job."""

from __future__ import annotations

import os

from flask import Flask
from flask.typing import ResponseReturnValue

from graphile_worker.contrib.flask import GraphileWorker, current_jobs

application = Flask(__name__)
application.config["GRAPHILE_WORKER_CONNECTION_STRING"] = os.environ["DATABASE_URL"]
GraphileWorker(application)

with application.app_context():
    current_jobs().add_job("loaded", {"pid": os.getpid()})  # so that the client is open when gunicorn forks


@application.get("/")
def index() -> ResponseReturnValue:
    return {"job": current_jobs().add_job("request", {"pid": os.getpid()}).id, "pid": os.getpid()}
