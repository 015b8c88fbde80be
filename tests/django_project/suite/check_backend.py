"""What Django's Tasks framework asks of a backend; run by `manage.py test --pattern "check_*.py"`."""

import asyncio
import dataclasses
import gc
import sys
import threading
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from unittest import mock

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.test import TransactionTestCase, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

import shop
from graphile_worker import GiveUp, JobSpec, Unique, run
from graphile_worker.contrib.django import aadd_job, add_job, utils, worker
from graphile_worker.contrib.django.conf import chosen_settings
from graphile_worker.contrib.django.tasks import (
    OWN_FIELDS,
    GraphileTask,
    InvalidTask,
    OwnOptions,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from graphile_worker.contrib.django.testing import enqueued_tasks
from graphile_worker.contrib.django.worker import make_app
from shop import tasks
from shop.models import Order

if django.VERSION >= (6,):
    from django.tasks.exceptions import TaskResultMismatch
else:
    from django_tasks.exceptions import TaskResultMismatch

FRAMEWORK = "django.tasks" if django.VERSION >= (6,) else "django_tasks"
FIELDS = (
    "id", "status", "enqueued_at", "started_at", "finished_at", "last_attempted_at", "args", "kwargs",
    "backend", "errors", "worker_ids",
)  # fmt: skip


def work(**options):
    call_command("graphile_worker", once=True, **options)


class BackendCase(TransactionTestCase):
    def setUp(self):
        tasks.RAN.clear()
        with connection.cursor() as cursor:
            cursor.execute("delete from graphile_worker._private_jobs")
        # Django's connections of threads that have ended are closed when they are collected.
        self.addCleanup(gc.collect)

    def assertSame(self, first, second):
        for name in FIELDS:
            self.assertEqual(getattr(first, name), getattr(second, name), name)
        self.assertEqual(first.task, second.task)


class Enqueue(BackendCase):
    def test_the_result_is_that_of_get_result(self):
        result = tasks.add.enqueue(1, b=2)
        self.assertEqual(result.status, TaskResultStatus.READY)
        self.assertEqual(result.attempts, 0)
        self.assertSame(result, tasks.add.get_result(result.id))
        self.assertSame(result, task_backends["default"].get_result(result.id))

    async def test_the_asynchronous_forms(self):
        result = await tasks.add_later.aenqueue(1, b=2)
        self.assertSame(result, await tasks.add_later.aget_result(result.id))
        await result.arefresh()
        self.assertEqual(result.status, TaskResultStatus.READY)

    def test_one_statement_each(self):
        tasks.add.enqueue(1)  # names are new now
        with CaptureQueriesContext(connection) as queries:
            result = tasks.add.enqueue(1)
        self.assertEqual(len(queries), 1, queries.captured_queries)
        with self.assertNumQueries(1):
            tasks.add.get_result(result.id)
        with self.assertNumQueries(1):
            result.refresh()

    def test_priority_and_time(self):
        later = timezone.now() + timedelta(hours=1)
        result = tasks.add.using(priority=5, run_after=later).enqueue(1)
        job = utils().jobs.get(int(result.id))
        self.assertEqual((job.priority, job.run_at), (-5, later))
        self.assertEqual(tasks.add.get_result(result.id).task.priority, 5)
        tasks.note.enqueue("usual")
        tasks.urgent.enqueue()
        work(jobs=1)
        self.assertEqual(tasks.RAN, ["urgent", "usual"])

    def test_arguments_must_be_json(self):
        with self.assertRaises(TypeError):
            tasks.add.enqueue(threading.Lock())

    def test_validation(self):
        with self.assertRaises(InvalidTask):
            tasks.add.using(queue_name="unknown")
        with self.assertRaises(InvalidTask):
            tasks.add.using(priority=101)
        with self.assertRaises(InvalidTask):
            tasks.add.using(run_after=timezone.now().replace(tzinfo=None))

    def test_it_belongs_to_the_transaction(self):
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            Order.objects.create(note="rolled back")
            rolled_back = tasks.add.enqueue(1)
            raise ZeroDivisionError
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.add.get_result(rolled_back.id)
        with transaction.atomic():
            result = tasks.add.enqueue(1)
            seen = []

            def look():
                try:
                    seen.append(tasks.add.get_result(result.id))
                except TaskResultDoesNotExist:
                    seen.append(None)
                finally:
                    connections.close_all()

            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
        self.assertEqual(seen, [None])
        self.assertEqual(tasks.add.get_result(result.id).status, TaskResultStatus.READY)

    def test_a_savepoint_takes_its_jobs_along(self):
        with transaction.atomic():
            kept = tasks.add.enqueue(1)
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                lost = tasks.add.enqueue(1)
                raise ZeroDivisionError
        tasks.add.get_result(kept.id)
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.add.get_result(lost.id)

    def test_atomic_requests(self):
        with mock.patch.dict(connections.settings["default"], ATOMIC_REQUESTS=True):
            with self.assertRaises(ZeroDivisionError):
                self.client.get("/order/", {"note": "wrong"})
            self.client.get("/order/", {"note": "right"})
        self.assertEqual([each.args for each in enqueued_tasks()], [["right"]])
        self.assertEqual(Order.objects.get().note, "right")

    def test_unknown_results(self):
        for wrong in ("", "abc", "0", "-1", "99999999", "9" * 40, "1e3", None):
            with self.assertRaises(TaskResultDoesNotExist):
                tasks.add.get_result(wrong)

    def test_a_result_of_another_task(self):
        result = tasks.add.enqueue(1)
        with self.assertRaises(TaskResultMismatch):
            tasks.note.get_result(result.id)

    def test_a_job_that_is_no_task(self):
        for path in ("os.system", "shop.models.Order", "shop.tasks.no_such_task", "mails:shop.tasks.RAN"):
            job = add_job(path, {"args": ["true"], "kwargs": {}})
            with self.assertRaises(TaskResultDoesNotExist):
                task_backends["default"].get_result(str(job.id))

    def test_tasks_are_validated_again(self):
        one_queue = {"BACKEND": settings.TASKS["default"]["BACKEND"]}
        changed = override_settings(TASKS={**settings.TASKS, "default": one_queue})
        with changed, self.assertRaises(InvalidTask):
            tasks.mail.enqueue("hello")
        self.assertEqual(enqueued_tasks(), [])

    def test_identifiers_have_a_limit(self):
        renamed = mock.patch.object(tasks.add.func, "__module__", "m" * 125)
        with renamed, self.assertRaisesMessage(InvalidTask, "longer than 128 characters"):
            task_backends["default"].validate_task(tasks.add)

    def test_the_log_names_the_task(self):
        with self.assertLogs(FRAMEWORK, "DEBUG") as logs:
            result = tasks.add.enqueue(1)
        self.assertIn(f"id={result.id} path=shop.tasks.add", logs.output[0])

    def test_how_long_results_are_kept(self):
        job = utils().jobs.get(int(tasks.add.enqueue(1).id))
        self.assertEqual(set(job.flags), {"py:keep=604800", "py:keep_payload"})

    def test_without_results(self):
        self.assertFalse(task_backends["without_results"].supports_get_result)
        result = tasks.forgotten.enqueue()
        with self.assertRaises(NotImplementedError):
            tasks.forgotten.get_result(result.id)

    def test_job_keys(self):
        first, second = tasks.unique.enqueue(), tasks.unique.enqueue()
        self.assertEqual(first.id, second.id)
        self.assertEqual(utils().jobs.get(int(first.id)).max_attempts, 2)
        other = tasks.unique.using(job_key="another", max_attempts=7).enqueue()
        self.assertEqual(utils().jobs.get(int(other.id)).max_attempts, 7)

    def test_options_of_a_job(self):
        examples = {
            "max_attempts": 3, "job_key": "k", "job_key_mode": "preserve_run_at",
            "unique": Unique(fields=("kwargs",)), "tags": ["gold"], "flags": ["slow"],
            "timeout": timedelta(minutes=5), "expires": timedelta(hours=2),
        }  # fmt: skip
        self.assertEqual(set(examples), set(OWN_FIELDS))
        self.assertEqual(set(examples), set(OwnOptions.__annotations__) - {"keep", "keep_payload"})
        with self.assertRaisesRegex(TypeError, "no option 'keep': the backend's RESULTS"):
            tasks.add.using(keep=True)
        self.assertLessEqual(set(OWN_FIELDS), {field.name for field in dataclasses.fields(GraphileTask)})
        for name, value in examples.items():
            needed = {"job_key": "another"} if name == "job_key_mode" else {}
            result = tasks.add.using(**needed, **{name: value}).enqueue(1)
            job = utils().jobs.get(int(result.id))
            spec = JobSpec("t", {"args": [1], "kwargs": {}}, **needed, **{name: value})
            own = {flag for flag in job.flags or () if not flag.startswith("py:keep")}
            self.assertEqual(own, set(spec.flags or ()), name)
            self.assertEqual(job.max_attempts, spec.max_attempts or 1)
            self.assertEqual(job.key is None, spec.job_key is None)

    def test_signals_and_pickles(self):
        seen = []

        def receive(sender, task_result, **kwargs):
            seen.append((sender, task_result))

        task_enqueued.connect(receive)
        try:
            result = tasks.add.enqueue(1)
        finally:
            task_enqueued.disconnect(receive)
        self.assertEqual(seen, [(type(task_backends["default"]), result)])

    async def test_jobs_of_ours(self):
        job = await aadd_job(tasks.own_task, {"text": "hello"})
        self.assertEqual(job.task_identifier, "own_task")


class Run(BackendCase):
    def run_one(self, task, *args, **kwargs):
        result = task.enqueue(*args, **kwargs)
        work()
        result.refresh()
        return result

    def test_functions_and_coroutines(self):
        for task in (tasks.add, tasks.add_later):
            result = self.run_one(task, 1, b=2)
            self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL)
            self.assertEqual(result.return_value, 3)
            self.assertEqual((result.args, result.kwargs), ([1], {"b": 2}))
            self.assertEqual((result.attempts, result.errors), (1, []))
            self.assertLessEqual(result.enqueued_at, result.started_at)
            self.assertLessEqual(result.started_at, result.finished_at)
            self.assertTrue(result.is_finished)

    def test_failures(self):
        for task in (tasks.fails, tasks.fails_later):
            result = self.run_one(task, "no such order")
            self.assertEqual(result.status, TaskResultStatus.FAILED)
            (error,) = result.errors
            self.assertIs(error.exception_class, ValueError)
            self.assertIn("no such order", error.traceback)
            self.assertIn("tasks.py", error.traceback)
            self.assertEqual(result.attempts, 1)
            self.assertLessEqual(result.started_at, result.finished_at)
            with self.assertRaises(ValueError):
                _ = result.return_value

    def test_every_kind_of_failure(self):
        kinds = {
            tasks.exits: (SystemExit, "3"),
            tasks.exits_later: (SystemExit, "3"),
            tasks.is_interrupted: (KeyboardInterrupt, "is_interrupted"),
            tasks.returns_unserialisable: (TypeError, "Unsupported type"),
            tasks.fails_because: (ValueError, "the cause"),
            tasks.fails_together: (ExceptionGroup, "second"),
        }
        results = [task.enqueue() for task in kinds]
        seen = set()

        def finished(sender, task_result, **kwargs):
            seen.add(sys.exc_info()[0])

        task_finished.connect(finished)
        try:
            with self.assertLogs(level="ERROR") as logs:
                work()
        finally:
            task_finished.disconnect(finished)
        self.assertEqual(seen, {kind for kind, _ in kinds.values()})
        failures = [record for record in logs.records if record.name == "graphile_worker.worker"]
        self.assertEqual(len(failures), len(kinds))
        self.assertEqual([record for record in logs.records if record.name == FRAMEWORK], [])
        for result, (kind, text) in zip(results, kinds.values(), strict=True):
            result.refresh()
            self.assertEqual(result.status, TaskResultStatus.FAILED)
            self.assertIs(result.errors[0].exception_class, kind)
            self.assertIn(text, result.errors[0].traceback)

    def test_a_failure_is_logged_once(self):
        result = tasks.fails.enqueue("no such order")
        with self.assertLogs(level="INFO") as logs:
            work()
        (failure,) = [record for record in logs.records if record.levelname == "ERROR"]
        self.assertIn(f"task shop.tasks.fails (job {result.id}) permanently failed", failure.getMessage())
        self.assertIn("no such order", failure.exc_text)
        self.assertIn(FRAMEWORK, {record.name for record in logs.records})  # its other lines stay

    def test_a_failure_that_no_worker_logs_is_left_to_the_framework(self):
        tasks.fails.enqueue("first")
        work()
        immediate = f"{FRAMEWORK}.backends.immediate.ImmediateBackend"
        with (
            override_settings(TASKS={"default": {"BACKEND": immediate}}),
            self.assertLogs(FRAMEWORK, "ERROR") as logs,
        ):
            tasks.fails.using(priority=0).enqueue("at once")
        self.assertEqual(logs.records[0].exc_info[0], ValueError)

    def test_endings(self):
        later, given_up = tasks.snoozes.enqueue(), tasks.gives_up.enqueue()
        seen = []

        def finished(sender, task_result, **kwargs):
            seen.append((task_result.id, task_result.status))

        task_finished.connect(finished)
        try:
            work()
        finally:
            task_finished.disconnect(finished)
        later.refresh()
        given_up.refresh()
        self.assertEqual((later.status, later.errors), (TaskResultStatus.READY, []))
        self.assertEqual((given_up.status, given_up.attempts), (TaskResultStatus.FAILED, 1))
        self.assertIs(given_up.errors[0].exception_class, GiveUp)
        self.assertEqual(seen, [(given_up.id, TaskResultStatus.FAILED)])

    def test_context(self):
        result = self.run_one(tasks.attempt)
        self.assertEqual(result.return_value, [1, result.id, 1])
        result = self.run_one(tasks.attempt_later)
        self.assertEqual(result.return_value, [1, result.id])

    def test_retries(self):
        result = self.run_one(tasks.fails_twice)
        self.assertEqual((result.status, result.attempts, len(result.errors)), (TaskResultStatus.READY, 1, 1))
        for _ in range(2):
            utils().reschedule_jobs([int(result.id)], run_at=timezone.now() - timedelta(seconds=1))
            work()
        result.refresh()
        self.assertEqual((result.status, result.return_value), (TaskResultStatus.SUCCESSFUL, "at last"))
        self.assertEqual((result.attempts, len(result.errors)), (3, 2))
        self.assertIs(result.errors[0].exception_class, OSError)

    def test_queues(self):
        tasks.note.enqueue("default")
        tasks.mail.enqueue("mail")
        work(queue=["mails"])
        self.assertEqual(tasks.RAN, ["mail"])
        tasks.mail.enqueue("later")
        work(exclude_queue=["mails"])
        self.assertEqual(tasks.RAN, ["mail", "default"])
        work(queue=["*"])
        self.assertEqual(tasks.RAN, ["mail", "default", "later"])

    def test_serial_queues(self):
        result = tasks.note.using(queue_name="serial").enqueue("one")
        self.assertEqual(utils().jobs.get(int(result.id)).queue_name, "serial")
        self.assertEqual(tasks.note.get_result(result.id).task.queue_name, "serial")

    def test_signals(self):
        seen = []

        def started(sender, task_result, **kwargs):
            seen.append(("started", task_result.status))

        def finished(sender, task_result, **kwargs):
            seen.append(("finished", task_result.status))

        task_started.connect(started)
        task_finished.connect(finished)
        try:
            for task in (tasks.add, tasks.add_later):
                self.run_one(task, 1)
            for task in (tasks.fails, tasks.fails_later):
                self.run_one(task, "x")
            self.run_one(tasks.fails_twice)
        finally:
            task_started.disconnect(started)
            task_finished.disconnect(finished)
        ended = [("started", "RUNNING"), ("finished", "SUCCESSFUL")] * 2
        failed = [("started", "RUNNING"), ("finished", "FAILED")] * 2
        self.assertEqual(seen, [*ended, *failed, ("started", "RUNNING")])

    def test_jobs_added_elsewhere(self):
        payload = '{"args": [1], "kwargs": {"b": 5}}'
        with connection.cursor() as cursor:
            cursor.execute("select id from graphile_worker.add_job('shop.tasks.add', %s)", [payload])
            (job_id,) = cursor.fetchone()
        wrong = add_job("shop.tasks.add", [1, 2])
        work()
        result = tasks.add.get_result(str(job_id))
        self.assertEqual((result.return_value, result.args, result.kwargs), (6, [1], {"b": 5}))
        failed = tasks.add.get_result(str(wrong.id))
        self.assertIn("payload of a Django task", failed.errors[0].traceback)
        self.assertEqual(failed.status, TaskResultStatus.FAILED)  # MAX_ATTEMPTS of the backend

    def test_tasks_of_ours(self):
        add_job(tasks.own_task, {"text": "hello"})
        work()
        self.assertEqual(tasks.RAN, ["hello"])
        self.assertEqual(Order.objects.get().note, "hello")

    def test_the_orm(self):
        for task in (tasks.create_order, tasks.create_order_later):
            result = self.run_one(task, "ordered")
            self.assertEqual(Order.objects.get(pk=result.return_value).note, "ordered")

    def test_coroutines_use_the_database_in_parallel_and_leave_no_session(self):
        before = sessions()
        results = [tasks.wait_in_database.enqueue(0.05) for _ in range(12)]
        work(jobs=4)
        pids = set()
        for result in results:
            result.refresh()
            pids.add(result.return_value)
        self.assertEqual(len(pids), 12)  # a session each
        ends = monotonic() + 60
        while sessions() > before:  # the server notices the end of a session with a delay
            self.assertLess(monotonic(), ends)

    def test_connections_that_die_are_replaced(self):
        for age in (0, 60, None):
            with self.subTest(age), mock.patch.dict(connections.settings["default"], CONN_MAX_AGE=age):
                first = tasks.backend_pid.using(priority=3).enqueue()
                lost = tasks.loses_its_connection.using(priority=2).enqueue()
                second = tasks.backend_pid.using(priority=1).enqueue()
                work(jobs=1)  # one thread
                for result in (first, lost, second):
                    result.refresh()
                self.assertEqual(lost.status, TaskResultStatus.FAILED)
                self.assertEqual(second.status, TaskResultStatus.SUCCESSFUL, second.errors)
                self.assertNotEqual(first.return_value, second.return_value)

    def test_connections_that_die_between_tasks_are_replaced(self):
        with mock.patch.dict(connections.settings["default"], CONN_MAX_AGE=None):
            results = [tasks.backend_pid.using(priority=priority).enqueue() for priority in (3, 1)]
            tasks.ends_other_sessions.using(priority=2).enqueue()
            work(jobs=1)
            for result in results:
                result.refresh()
                self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL, result.errors)
            self.assertNotEqual(results[0].return_value, results[1].return_value)

    def test_tasks_in_modules_that_were_not_imported(self):
        self.assertNotIn("shop.elsewhere", sys.modules)
        job = add_job("shop.elsewhere.hidden", {"args": ["hello"], "kwargs": {}})
        refused = add_job("subprocess.getoutput", {"args": ["true"], "kwargs": {}})
        with self.assertLogs("graphile_worker.django", "INFO") as logs:
            work()
        self.assertEqual(tasks.RAN, ["hello"])
        self.assertEqual(task_backends["default"].get_result(str(job.id)).return_value, "hello")
        self.assertEqual(utils().jobs.get(refused.id).attempts, 0)
        refusal = "'subprocess.getoutput' are left to other workers: it is not a task of this project"
        self.assertIn(refusal, "".join(logs.output))

    async def test_tasks_that_are_deployed_later(self):
        await sync_to_async(self.setUp)()
        job = await aadd_job("shop.deployed.late", {"args": ["late"], "kwargs": {}})
        app = await sync_to_async(make_app)()
        options = chosen_settings({}).worker
        with (
            TemporaryDirectory() as folder,
            mock.patch.object(shop, "__path__", [*shop.__path__, folder]),
            mock.patch.object(worker, "INTERVAL", 0.05),
        ):
            async with asyncio.timeout(60), run(app=app, options=options, handle_signals=False) as runner:
                Path(folder, "deployed.py").write_text(DEPLOYED)
                while await sync_to_async(is_in_queue)(job.id):  # noqa: ASYNC110 - it is in the database
                    await asyncio.sleep(0.05)
                registered = await sync_to_async(tasks_of_worker)(runner.pool_id)
        self.assertEqual(tasks.RAN, ["late"])
        self.assertIn("shop.deployed.late", registered)


DEPLOYED = """
from shop.tasks import RAN, task

@task
def late(text):
    RAN.append(text)
"""


def tasks_of_worker(pool_id):
    with connection.cursor() as cursor:
        cursor.execute("select tasks from graphile_worker._private_py_workers where id = %s", [pool_id])
        return cursor.fetchone()[0]


def is_in_queue(job_id):
    return utils().jobs.get(job_id) is not None


def sessions():
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from pg_stat_activity "
            "where datname = current_database() and backend_type = 'client backend'"
        )
        return cursor.fetchone()[0]


class WithoutZones(BackendCase):
    @override_settings(USE_TZ=False)
    def test_times_are_naive(self):
        later = timezone.now() + timedelta(hours=1)
        result = tasks.add.using(run_after=later).enqueue(1)
        self.assertTrue(timezone.is_naive(result.enqueued_at))
        self.assertEqual(utils().jobs.get(int(result.id)).run_at, timezone.make_aware(later))
