"""Tasks of every kind."""

import asyncio
import os
import threading
import time
from typing import Any

import django
from django.db import connection

from graphile_worker import GiveUp, JobHelpers, Snooze
from graphile_worker import task as worker_task
from graphile_worker.contrib.django import task as graphile_task

from .models import Order

if django.VERSION >= (6,):
    from django.tasks import task
else:
    from django_tasks import task

RAN: list[Any] = []
"""What ran in this process."""


@task
def add(a, b=0):
    return a + b


@task
async def add_later(a, b=0):
    await asyncio.sleep(0)
    return a + b


@task(takes_context=True)
def attempt(context):
    return [context.attempt, context.task_result.id, len(context.task_result.worker_ids)]


@task
def note(text):
    RAN.append(text)


@task(priority=10)
def urgent():
    RAN.append("urgent")


@task(queue_name="mails")
def mail(text):
    RAN.append(text)


@task
def fails(text):
    raise ValueError(text)


@task
async def fails_later(text):
    raise ValueError(text)


@task
def exits():
    raise SystemExit(3)


@task
async def exits_later():
    raise SystemExit(3)


@task
def is_interrupted():
    raise KeyboardInterrupt


@task
def fails_because():
    try:
        raise KeyError("the cause")
    except KeyError as error:
        raise ValueError("the effect") from error


@task
async def fails_together():
    raise ExceptionGroup("two", [ValueError("first"), KeyError("second")])


@task(takes_context=True)
async def attempt_later(context):
    return [context.attempt, context.task_result.id]


@graphile_task(backend="retrying")
def snoozes():
    raise Snooze(3600)


@graphile_task(backend="retrying")
async def gives_up():
    return GiveUp("the card is stolen")


@task
def returns_unserialisable():
    return threading.Lock()


@graphile_task(backend="retrying")
def fails_twice():
    RAN.append("attempt")
    if RAN.count("attempt") < 3:
        raise OSError("not yet")
    return "at last"


@graphile_task(max_attempts=2, job_key="only-one")
def unique():
    return None


@task
def create_order(text):
    return Order.objects.create(note=text).pk


@task
async def create_order_later(text):
    order = await Order.objects.acreate(note=text)
    return order.pk


@task
def backend_pid():
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        return cursor.fetchone()[0]


@task
async def wait_in_database(seconds):
    from asgiref.sync import sync_to_async

    def wait():
        with connection.cursor() as cursor:
            cursor.execute("select pg_sleep(%s), pg_backend_pid()", [seconds])
            return cursor.fetchone()[1]

    return await sync_to_async(wait)()


@task(backend="without_results")
def forgotten():
    return 1


@worker_task
def own_task(payload: dict[str, str]) -> None:
    RAN.append(Order.objects.create(note=payload["text"]).note)


@worker_task
def count_up() -> None:
    RAN.append(len(RAN))


@task
async def endless():
    print("endless: started", flush=True)
    await asyncio.Event().wait()


@task
def count_orders():
    return Order.objects.count()


@task
async def count_orders_later():
    return await Order.objects.acount()


@task
def chain(more):
    Order.objects.create(note=str(more))
    if more:
        chain.enqueue(more - 1)


@task
def breaks_the_transaction():
    Order.objects.create(note="rolled back")
    with connection.cursor() as cursor:
        cursor.execute("select 1/0")


@task
async def breaks_the_transaction_later():
    from asgiref.sync import sync_to_async

    await sync_to_async(breaks_the_transaction.func)()


@worker_task
def adds_another(payload: dict[str, str], helpers: JobHelpers) -> None:
    helpers.sync.add_job(own_task, payload)


@task
async def ends_other_sessions():
    """In a session of its own, unlike plain functions."""
    from asgiref.sync import sync_to_async

    await sync_to_async(_end_other_sessions)()


def _end_other_sessions():
    with connection.cursor() as cursor:
        cursor.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
            " and pid <> pg_backend_pid() and query like '%pg_backend_pid()%' and state = 'idle'"
        )


@task
def loses_its_connection():
    with connection.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(pg_backend_pid())")


@task
def waits_for(path):
    """Runs until the file exists."""
    print("waits_for: started", flush=True)
    while not os.path.exists(path):
        time.sleep(0.02)
    return "finished"


@task
def append(path, text):
    with open(path, "a") as file:
        file.write(f"{text}\n")
