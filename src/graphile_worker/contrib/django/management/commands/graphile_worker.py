"""`manage.py graphile_worker`: runs a worker, or one of our commands on Django's database."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import click
from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connections

from graphile_worker.cli.main import graphile_worker
from graphile_worker.cli.support.parameters import Period
from graphile_worker.config.process_options import SERVE_OPTIONS
from graphile_worker.config.sources import PREFIX
from graphile_worker.contrib.django.conf import connection_string, worker_settings
from graphile_worker.contrib.django.worker import make_app


def period(text: str) -> timedelta:
    """A length of time such as `60s`, for argparse."""
    try:
        return Period().convert(text, None, None)
    except click.BadParameter as error:
        raise argparse.ArgumentTypeError(error.message) from None


def process_flags() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The options of a process that have a simple flag: the name of each, its flag, and more for argparse."""
    names = (*SERVE_OPTIONS, "wait_for_database")
    for option in graphile_worker.params:
        if not isinstance(option, click.Option) or option.name not in names or option.multiple:
            continue
        more: dict[str, Any] = {"help": option.help, "default": None}
        if option.is_flag:
            more["action"] = "store_true"
        elif isinstance(option.type, click.Choice):
            more["choices"] = list(option.type.choices)
        else:
            kind: Any = int if isinstance(option.type, click.IntRange) else str
            if isinstance(option.type, Period):
                kind = period
            more |= {"metavar": option.metavar, "type": kind}
        yield option.name, option.opts[0], more


class Command(BaseCommand):
    """The arguments of a worker; any further words are one of our commands."""

    help = (
        "Run a worker for Graphile Worker. Further words are a command of graphile-worker on Django's "
        "database, such as `manage.py graphile_worker list --state failed`."
    )
    requires_migrations_checks = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Called by Django."""
        add = parser.add_argument
        add(
            "--queue",
            action="append",
            default=[],
            metavar="NAME",
            help="Serve this queue of TASKS only.  [default: * for all]",
        )
        add("--exclude-queue", action="append", default=[], metavar="NAME", help="Do not serve this queue.")
        add("-j", "--jobs", type=int, metavar="N", help="Jobs to run at the same time.")
        add("--once", action="store_true", help="Run until no job is ready, then exit.")
        add(
            "--reload",
            action=argparse.BooleanOptionalAction,
            default=None,
            help="Restart when code changes; running jobs end first.  [default: with DEBUG]",
        )
        add("--grace", type=float, metavar="SECONDS", help="How long running jobs may go on at the end.")
        for name, flag, more in process_flags():
            add(flag, dest=name, **more)
        add("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        """Called by Django."""
        words = options.get("words") or []
        if words:
            self._run_command(words)
        chosen = worker_settings()
        worker = chosen.worker_options(
            connection_string=connection_string(), concurrency=options.get("jobs"), grace=options.get("grace")
        )
        app = make_app(options.get("queue") or (), options.get("exclude_queue") or ())
        connections.close_all()  # they must not be shared with processes that are forked
        if options.get("once") and not self._is_command_line():
            from graphile_worker.runner import run_once

            asyncio.run(run_once(app=app, options=worker))
            return
        from graphile_worker.process.serve import serve

        self._avoid_repeated_lines()
        serve(
            app,
            options=worker,
            once=bool(options.get("once")),
            watch=self._reloads(options),
            **{name: options.get(name) for name, *_ in process_flags()},  # type: ignore[arg-type]
        )

    @staticmethod
    def _avoid_repeated_lines() -> None:
        """With DEBUG, Django's own handler shows its lines; ours would show them again."""
        of_django = logging.getLogger("django")
        if settings.DEBUG and of_django.handlers and not logging.getLogger().handlers:
            of_django.propagate = False

    def _run_command(self, words: list[str]) -> None:
        from graphile_worker.cli.main import run_main

        os.environ[f"{PREFIX}CONNECTION_STRING"] = connection_string()
        os.environ[f"{PREFIX}SCHEMA"] = worker_settings().schema
        sys.exit(run_main(words))

    def _is_command_line(self) -> bool:
        return bool(getattr(self, "_called_from_command_line", False))

    @staticmethod
    def _reloads(options: dict[str, Any]) -> bool:
        """Whether to watch the code: if asked to, else with DEBUG if the package for it is installed."""
        wanted = options.get("reload")
        if wanted is not None:
            return bool(wanted)
        return bool(settings.DEBUG) and not options.get("once") and find_spec("watchfiles") is not None
