"""`manage.py graphile_worker`: runs a worker, or one of our commands on Django's database."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import click
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from graphile_worker.cli.main import graphile_worker, run_main
from graphile_worker.cli.support.parameters import PERIOD
from graphile_worker.config.settings import SERVE_OPTIONS
from graphile_worker.contrib.django.conf import chosen_settings, host
from graphile_worker.contrib.django.worker import make_app
from graphile_worker.errors import GraphileWorkerError


def period(text: str) -> timedelta:
    """A length of time such as `60s`, for argparse."""
    try:
        return PERIOD.convert(text, None, None)
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
            if option.type is PERIOD:
                kind = period
            more |= {"metavar": option.metavar, "type": kind}
        yield option.name, option.opts[0], more


FLAGS = {"jobs": "concurrency", "grace": "grace", **{name: name for name, *_ in process_flags()}}
"""Arguments that set an option, and the option."""
ONLY_WORKER = ("queue", "exclude_queue", "once", "reload")


class Command(BaseCommand):
    """The arguments of a worker; any further words are one of our commands."""

    help = (
        "Run a worker for Graphile Worker. Words after it are a command of graphile-worker on Django's "
        "database, such as `manage.py graphile_worker list --state failed`."
    )
    requires_migrations_checks = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
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
        add("--grace", type=float, metavar="SECONDS", help="How long running jobs may take at shutdown.")
        for name, flag, more in process_flags():
            add(flag, dest=name, **more)
        add("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        flags = {option: options.get(name) for name, option in FLAGS.items()}
        try:
            if words := options.get("words"):
                self._run_command(words, options, flags)
            chosen = chosen_settings(flags)
            app = make_app(options.get("queue") or (), options.get("exclude_queue") or ())
        except (GraphileWorkerError, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error
        connections.close_all()  # they must not be shared with processes that are forked
        if options.get("once") and not getattr(self, "_called_from_command_line", False):
            from graphile_worker.runner import run_once

            asyncio.run(run_once(app=app, options=chosen.worker))
            return
        from graphile_worker.runner.process.serve import serve

        self._avoid_repeated_lines()
        of_process = {name: getattr(chosen.process, name) for name in SERVE_OPTIONS if name in chosen.places}
        serve(
            app,
            options=chosen.worker,
            once=bool(options.get("once")),
            watch=self._reloads(options),
            **of_process,
        )

    @staticmethod
    def _avoid_repeated_lines() -> None:
        """With DEBUG, Django's own handler shows its lines; ours would show them again."""
        of_django = logging.getLogger("django")
        if settings.DEBUG and of_django.handlers and not logging.getLogger().handlers:
            of_django.propagate = False

    def _run_command(self, words: list[str], options: dict[str, Any], flags: dict[str, Any]) -> None:
        """Run one of our commands. Only `config` shows what flags of a worker do."""
        refused = ONLY_WORKER if words[0] == "config" else (*ONLY_WORKER, *FLAGS)
        for name in refused:
            if options.get(name) not in (None, False, []):
                flag = f"--{name.replace('_', '-')}"
                raise CommandError(f"{flag} is for running a worker and has no effect on {words[0]!r}")
        sys.exit(run_main(words, host(flags)))

    @staticmethod
    def _reloads(options: dict[str, Any]) -> bool:
        """Whether to watch the code: if asked to, else with DEBUG if the package for it is installed."""
        wanted = options.get("reload")
        if wanted is not None:
            return bool(wanted)
        return bool(settings.DEBUG) and not options.get("once") and find_spec("watchfiles") is not None
