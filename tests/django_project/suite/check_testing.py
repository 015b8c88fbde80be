"""`run_tasks` and `enqueued_tasks`, in tests of every kind."""

from datetime import timedelta

from django.db import connection
from django.test import TestCase, TransactionTestCase
from django.utils import timezone

from graphile_worker.contrib.django import add_job, utils
from graphile_worker.contrib.django.tasks import TaskResultStatus
from graphile_worker.contrib.django.testing import arun_tasks, enqueued_tasks, run_tasks
from shop import tasks
from shop.models import Order


class Shared:
    """What holds in a transaction and without one."""

    def setUp(self):
        tasks.RAN.clear()
        with connection.cursor() as cursor:
            cursor.execute("delete from graphile_worker._private_jobs")

    def test_results(self):
        Order.objects.create(note="of the test")
        tasks.count_orders.enqueue()
        tasks.count_orders_later.enqueue()
        tasks.fails.enqueue("no such order")
        tasks.forgotten.enqueue()
        results = {result.task.func: result for result in run_tasks()}
        self.assertEqual(len(results), 3)
        first = results[tasks.count_orders.func]
        self.assertLessEqual(first.enqueued_at, first.started_at)
        self.assertLessEqual(first.started_at, first.finished_at)
        self.assertLessEqual(first.finished_at, timezone.now())
        self.assertEqual((first.return_value, results[tasks.count_orders_later.func].return_value), (1, 1))
        failed = results[tasks.fails.func]
        self.assertEqual(failed.status, TaskResultStatus.FAILED)
        self.assertIn("no such order", failed.errors[0].traceback)
        self.assertEqual(run_tasks(), [])

    def test_what_tasks_write_and_enqueue(self):
        tasks.chain.enqueue(3)
        results = run_tasks()
        self.assertEqual([result.args for result in results], [[3], [2], [1], [0]])
        self.assertEqual(Order.objects.count(), 4)

    def test_a_failed_statement_leaves_the_test_usable(self):
        tasks.breaks_the_transaction.enqueue()
        tasks.breaks_the_transaction_later.enqueue()
        tasks.create_order.enqueue("after it")
        results = {result.task.func: result for result in run_tasks()}
        for task in (tasks.breaks_the_transaction, tasks.breaks_the_transaction_later):
            self.assertIn("division by zero", results[task.func].errors[0].traceback)
        done = results[tasks.create_order.func]
        self.assertEqual(Order.objects.get(note="after it").pk, done.return_value)

    def test_times(self):
        tasks.note.using(run_after=timezone.now()).enqueue("now")
        tasks.note.using(run_after=timezone.now() + timedelta(hours=1)).enqueue("later")
        self.assertEqual(len(run_tasks()), 1)
        (waiting,) = enqueued_tasks(tasks.note)
        self.assertEqual((waiting.args, waiting.status), (["later"], TaskResultStatus.READY))
        self.assertEqual(len(run_tasks(until=timedelta(minutes=59))), 0)
        self.assertEqual(len(run_tasks(until=timezone.now() + timedelta(minutes=61))), 1)
        self.assertEqual(tasks.RAN, ["now", "later"])
        self.assertEqual(enqueued_tasks(), [])

    def test_jobs_of_ours(self):
        add_job(tasks.own_task, {"text": "hello"})
        add_job(tasks.adds_another, {"text": "again"})
        results = run_tasks()
        self.assertEqual(results, [])
        self.assertEqual(len(results.jobs.check()), 3)
        self.assertEqual(sorted(tasks.RAN), ["again", "hello"])
        failing = add_job(tasks.own_task, {})
        before = timezone.now()
        with self.assertRaises(KeyError):
            run_tasks().jobs.check()
        self.assertGreater(utils().jobs.get(failing.id).run_at, before + timedelta(seconds=2.6))

    def test_an_endless_chain_is_an_error(self):
        tasks.chain.enqueue(1_000_000)
        with self.assertRaisesMessage(RuntimeError, "run_tasks has run 5 jobs"):
            run_tasks(limit=5)

    async def test_asynchronous_tests(self):
        await tasks.add_later.aenqueue(1, b=2)
        await tasks.create_order.aenqueue("hello")
        results = {result.task.func: result for result in await arun_tasks()}
        self.assertEqual(results[tasks.add_later.func].return_value, 3)
        self.assertEqual(await Order.objects.acount(), 1)

    def test_it_is_quick(self):
        tasks.add.enqueue(1)
        with self.assertNumQueries(FewerThan(100)):  # 75, and a few more if the worker looks again
            run_tasks()


class FewerThan(int):
    """A bound where a number is expected."""

    def __eq__(self, other):
        return other < int(self)

    __hash__ = int.__hash__


class InATransaction(Shared, TestCase):
    pass


class WithoutATransaction(Shared, TransactionTestCase):
    pass
