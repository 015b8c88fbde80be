"""Two databases: jobs are in the second one, orders in the first."""

from unittest import skipUnless

from django.conf import settings
from django.core.management import call_command
from django.db import connections, transaction
from django.test import TestCase, TransactionTestCase

from graphile_worker.contrib.django import add_job, utils
from graphile_worker.contrib.django.tasks import TaskResultStatus
from graphile_worker.contrib.django.testing import enqueued_tasks, run_tasks
from shop import tasks
from shop.models import Order

HAS_SECOND = "second" in settings.DATABASES
ALIASES = ("default", "second") if HAS_SECOND else ()


def has_schema(alias):
    with connections[alias].cursor() as cursor:
        cursor.execute("select to_regclass('graphile_worker._private_jobs') is not null")
        return cursor.fetchone()[0]


@skipUnless(HAS_SECOND, "one database")
class InATransaction(TestCase):
    databases = ALIASES

    def test_tasks(self):
        self.assertEqual((has_schema("default"), has_schema("second")), (False, True))
        with self.assertRaises(ZeroDivisionError), transaction.atomic(using="second"):
            tasks.create_order.enqueue("rolled back")
            raise ZeroDivisionError
        tasks.create_order.enqueue("hello")
        self.assertEqual([each.args for each in enqueued_tasks()], [["hello"]])
        (result,) = run_tasks()
        self.assertEqual(Order.objects.get().pk, result.return_value)
        add_job(tasks.own_task, {"text": "ours"}, using="second")
        self.assertEqual(len(utils().jobs.list()), 1)
        self.assertEqual(len(run_tasks().jobs), 1)


@skipUnless(HAS_SECOND, "one database")
class WithAWorker(TransactionTestCase):
    databases = ALIASES

    def test_tasks(self):
        result = tasks.create_order.enqueue("hello")
        call_command("graphile_worker", once=True)
        result.refresh()
        self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL)
        self.assertEqual(Order.objects.get(note="hello").pk, result.return_value)
