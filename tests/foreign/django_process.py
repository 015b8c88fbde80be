"""Django in a process of its own, because its settings are global: `python django_process.py URL BINDING`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import django
from django.conf import settings

from foreign.hostile_texts import ATTACK, cases, check_texts
from graphile_worker import JobSpec, SyncWorkerUtils
from graphile_worker.database.connections.bound import run_blocking
from graphile_worker.database.connections.errors import sqlstate_of
from graphile_worker.errors import InvalidArgumentError, SchemaMissingError

E = TypeVar("E", bound=BaseException)

COUNT = "select count(*) from graphile_worker._private_jobs"


def configure(url: str, server_side: bool) -> None:
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    settings.configure(
        USE_TZ=True,
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": parts.path.removeprefix("/"),
                "USER": parts.username,
                "PASSWORD": parts.password or "",
                "HOST": parts.hostname or query["host"][0],
                "PORT": str(parts.port or query.get("port", [""])[0]),
                "OPTIONS": {"server_side_binding": server_side},
            },
            "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        },
    )
    django.setup()


def utils(connection: Any, schema: str = "graphile_worker") -> SyncWorkerUtils:
    return SyncWorkerUtils.bound(connection, schema=schema)


def raised(kind: type[E], function: Callable[[], Any]) -> E:
    """The error of this kind that the function raises."""
    try:
        function()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def count(connection: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute(COUNT)
        return int(cursor.fetchone()[0])


def check_transactions(connection: Any) -> None:
    from django.db import transaction

    client = utils(connection)
    specs = [JobSpec("many", number) for number in range(2500)]
    for rolled_back in (True, False):
        with transaction.atomic():
            job = client.add_job(ATTACK, {ATTACK: 1}, queue_name=ATTACK, job_key=ATTACK)
            assert (job.task_identifier, job.payload, job.key) == (ATTACK, {ATTACK: 1}, ATTACK)
            assert len(client.add_jobs(specs)) == 2500
            transaction.set_rollback(rolled_back)
        assert count(connection) == (0 if rolled_back else 2501)
    with suppress(ZeroDivisionError), transaction.atomic():
        client.remove_job(ATTACK)
        with transaction.atomic():
            client.add_jobs(specs)
            raise ZeroDivisionError
    assert count(connection) == 2501


def check_hostile_texts(connection: Any) -> None:
    from django.db import transaction

    async def do(result: Any) -> Any:
        return result

    before = count(connection)
    with transaction.atomic():
        for case in cases():
            run_blocking(check_texts(utils(connection), do, *case))
        transaction.set_rollback(True)
    assert count(connection) == before


def check_autocommit(connection: Any) -> None:
    client = utils(connection)

    def failing() -> Any:
        yield from (JobSpec("undone", number) for number in range(2500))
        raise ZeroDivisionError

    before = count(connection)
    client.add_job("one")
    raised(ZeroDivisionError, lambda: client.add_jobs(failing()))
    assert count(connection) == before + 1
    assert client.statistics.jobs().jobs.total == before + 1
    utils(connection, "of_django").migrate()
    utils(connection, "of_django").add_job("hello")


def check_errors(connection: Any, other: Any) -> None:
    from django.db import ProgrammingError, transaction
    from django.db.transaction import TransactionManagementError

    missing = raised(SchemaMissingError, lambda: utils(connection, "not_there").add_job("hello"))
    assert isinstance(missing.__cause__, ProgrammingError)
    assert sqlstate_of(missing.__cause__) == "3F000"
    assert "LINE 1" not in str(missing)
    with transaction.atomic():
        transaction.set_rollback(True)
        raised(TransactionManagementError, lambda: utils(connection).add_job("hello"))
    refused = raised(InvalidArgumentError, lambda: SyncWorkerUtils.bound(other))
    assert str(refused) == "connection: the database 'other' of Django is not PostgreSQL"


def main() -> None:
    configure(sys.argv[1], sys.argv[2] == "server")
    from django.db import connection, connections

    check_transactions(connection)
    check_autocommit(connections["default"])
    check_errors(connection, connections["other"])
    check_hostile_texts(connection)
    print("done")


if __name__ == "__main__":
    main()
