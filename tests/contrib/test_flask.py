"""Flask: a client from the settings, jobs in the transaction of Flask-SQLAlchemy's session, our commands."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from flask import Flask, current_app
from flask_sqlalchemy import SQLAlchemy

from graphile_worker import App, run_once, task
from graphile_worker.contrib.flask import AppContext, GraphileWorker, current_jobs
from graphile_worker.errors import ConfigError
from support.working import Jobs


def shop(database_url: str, **settings: object) -> Any:
    app = Flask("flask_shop")
    app.config.update(GRAPHILE_WORKER_CONNECTION_STRING=database_url, **settings)
    GraphileWorker().init_app(app)
    return app


async def test_views_add_jobs(database_url: str, jobs: Jobs) -> None:
    app = shop(database_url)

    def add() -> str:
        return str(current_jobs().add_job("welcome").id)

    app.add_url_rule("/", view_func=add, methods=["POST"])
    answer = await asyncio.to_thread(app.test_client().post, "/")
    assert [job["id"] for job in await jobs.all()] == [int(answer.text)]


async def test_a_job_belongs_to_the_transaction_of_the_session(database_url: str, jobs: Jobs) -> None:
    url = database_url.replace("postgresql:", "postgresql+psycopg:")
    app = shop(database_url, SQLALCHEMY_DATABASE_URI=url)
    db = SQLAlchemy(app)
    with app.app_context():
        current_jobs(db.session).add_job("rolled_back")
        db.session.rollback()
        current_jobs(db.session).add_job("welcome")
        db.session.commit()
        db.engine.dispose()
    assert [job["identifier"] for job in await jobs.all()] == ["welcome"]


async def test_tasks_run_in_the_context_of_the_application(database_url: str, jobs: Jobs) -> None:
    names: list[str] = []

    @task
    async def in_loop() -> None:
        names.append(current_app.name)

    @task
    def in_thread() -> None:
        names.append(current_app.name)

    for identifier in ("in_loop", "in_thread"):
        await jobs.add(identifier)
    app = App(plugins=[AppContext(shop(database_url))], tasks=[in_loop, in_thread])
    await run_once(app=app, connection_string=database_url)
    assert names == ["flask_shop", "flask_shop"]


def test_the_command_uses_the_settings(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHILE_WORKER_CONNECTION_STRING", "overwritten, and restored after the test")
    runner = shop(database_url).test_cli_runner()
    added = runner.invoke(args=["graphile-worker", "add", "welcome", "{}"])
    assert added.exit_code == 0, added.output
    assert "welcome" in runner.invoke(args=["graphile-worker", "list"]).output
    assert runner.invoke(args=["graphile-worker", "no-such-command"]).exit_code == 2


def test_unknown_settings_are_refused(database_url: str) -> None:
    with pytest.raises(ConfigError, match="did you mean 'concurrency'"):
        shop(database_url, GRAPHILE_WORKER_CONCURENCY=3)


def test_an_application_without_the_extension_is_told(database_url: str) -> None:
    with Flask("other").app_context(), pytest.raises(RuntimeError, match="call init_app"):
        current_jobs()
