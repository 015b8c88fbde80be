"""Recurring tasks: CRONTAB and CRON_ITEMS, their checks, and the worker that adds them."""

import asyncio

from asgiref.sync import sync_to_async
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import SimpleTestCase, TransactionTestCase, override_settings

from graphile_worker import CronItem, run
from graphile_worker.contrib.django import utils
from graphile_worker.contrib.django.conf import chosen_settings
from graphile_worker.contrib.django.tasks import TaskResultStatus
from graphile_worker.contrib.django.worker import make_app
from shop import tasks

ITEMS = [CronItem(tasks.note, "0 4 * * *", {"backfill_period": "1d"}, {"args": ["from code"]})]
"""What `"CRON_ITEMS": "suite.check_recurring.ITEMS"` names."""


def found(**setting):
    """The messages of `manage.py check` by id."""
    with override_settings(GRAPHILE_WORKER=setting):
        messages = [each for each in run_checks() if each.id not in ("graphile_worker.W001",)]
    return [(each.id.partition(".")[2], each.msg) for each in messages]


class Checks(SimpleTestCase):
    def test_right_ones(self):
        crontab = """
            0 4 * * * shop.tasks.note ?tz=Europe/Berlin {args: ["nightly"]}
            0 5 * * * count_up
            0 6 * * * mails:shop.tasks.mail {kwargs: {text: "x"}}
            0 7 * * * shop.tasks.attempt
        """
        items = [{"task": "shop.tasks.add", "match": "@daily", "payload": {"args": [1]}, "identifier": "sum"}]
        self.assertEqual(found(CRONTAB=crontab, CRON_ITEMS=items), [])
        self.assertEqual(found(CRON_ITEMS="suite.check_recurring.ITEMS"), [])

    def test_wrong_values_have_one_line_each(self):
        crontab = "0 4 * * * tasks.note$\n0 25 * * * own_task"
        self.assertEqual(
            found(CRONTAB=crontab),
            [
                (
                    "E003",
                    "setting GRAPHILE_WORKER['CRONTAB']:1:11: invalid command specification 'tasks.note$'; "
                    "the name of a task may not have '$'; allowed: letters, digits and _ : / . -",
                ),
                ("E003", "setting GRAPHILE_WORKER['CRONTAB']:2:3: hour: 25 is too large; allowed: 0 to 23"),
            ],
        )
        for wrong, message in (
            ([{"task": "shop.tasks.note", "pattern": "0 4 * * *"}], "the field is called `match`"),
            ([{"task": "shop.tasks.note", "match": "0 4 * *"}], "item 0"),
            ([CronItem(tasks.note, "0 4 * * *", {"maxattempts": 1})], "max_attempts"),
            ("suite.check_recurring.NOTHING", "NOTHING"),
            ("suite.nowhere.ITEMS", "suite.nowhere"),
            ("suite.check_recurring.found", "expected a list of CronItem"),
            ({"task": "a"}, "expected a list of CronItem"),
            (3, "expected a list of CronItem"),
            ([*ITEMS, *ITEMS], "already used"),
        ):
            ((number, text),) = found(CRON_ITEMS=wrong)
            self.assertEqual(number, "E003")
            self.assertIn("GRAPHILE_WORKER['CRON_ITEMS']", text)
            self.assertIn(message, text)
            self.assertNotIn("\n", text)

    def test_other_keys_are_checked(self):
        for key, wrong in (("CRONTAB", ["a"]), ("TASK_MODULES", "tasks"), ("SCHEMA", 3), ("OPTIONS", [1])):
            ((number, text),) = found(**{key: wrong})
            self.assertEqual(number, "E003")
            self.assertIn(f"GRAPHILE_WORKER['{key}']: expected", text)

    def test_arguments_that_do_not_fit(self):
        for line, message in (
            ("shop.tasks.note", "missing a required argument: 'text'"),
            ("shop.tasks.note {args: [1, 2]}", "too many positional arguments"),
            ("shop.tasks.note {text: 'x'}", "the payload of a Django task must be"),
            ("shop.tasks.note {args: 'x'}", "the payload of a Django task must be"),
            ("own_task {text: 3}", "own_task"),
        ):
            ((number, text),) = found(CRONTAB=f"0 4 * * * {line}")
            self.assertEqual(number, "E004")
            self.assertIn(message, text)

    def test_tasks_that_do_not_exist(self):
        for name, hint in (
            ("shop.tasks.nota", "did you mean 'shop.tasks.note'?"),
            ("note", "this project has no task 'note'"),
            ("nowhere:shop.tasks.note", "this project has no task"),
            ("os.system", "this project has no task 'os.system'"),
        ):
            ((number, text),) = found(CRONTAB=f"0 4 * * * {name}")
            self.assertEqual(number, "W004")
            self.assertIn(hint, text)

    def test_the_worker_has_one_line_too(self):
        for wrong, message in (
            ({"CRONTAB": "0 4 * * * a$"}, "the name of a task may not have '$'"),
            ({"OPTIONS": {"concurency": 3}}, "did you mean 'concurrency'?"),
            ({"OPTIONS": {"grace": -1}}, "grace: must be"),
        ):
            with (
                self.subTest(message),
                override_settings(GRAPHILE_WORKER=wrong),
                self.assertRaisesMessage(CommandError, message),
            ):
                call_command("graphile_worker", once=True)


class Runs(TransactionTestCase):
    async def test_a_worker_adds_and_runs_them(self):
        crontab = "0 4 * * * shop.tasks.add ?id=sum&fill=1d {args: [1], kwargs: {b: 2}}"
        setting = {"CRONTAB": crontab, "CRON_ITEMS": "suite.check_recurring.ITEMS"}
        tasks.RAN.clear()
        await sync_to_async(miss_runs)("sum", "shop.tasks.note")
        with override_settings(GRAPHILE_WORKER=setting):
            app = await sync_to_async(make_app)()
            options = (await sync_to_async(chosen_settings)({})).worker
            known = {item.identifier: item.task_identifier for item in app.cron_items}
            self.assertEqual(known, {"sum": "shop.tasks.add", "shop.tasks.note": "shop.tasks.note"})
            async with asyncio.timeout(60), run(app=app, options=options, handle_signals=False):
                while (added := await sync_to_async(result_of_sum)()) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)  # it is in the database
        self.assertEqual(tasks.RAN, ["from code"])
        self.assertEqual((added.status, added.return_value), (TaskResultStatus.SUCCESSFUL, 3))


def miss_runs(*identifiers):
    """Let a worker find that it has not run for two days, so that it adds the runs of the last day."""
    with connection.cursor() as cursor:
        for identifier in identifiers:
            cursor.execute(
                "insert into graphile_worker._private_known_crontabs "
                "values (%s, now() - interval '2 days', now() - interval '2 days')",
                [identifier],
            )


def result_of_sum():
    """The result of the recurring sum, once both jobs are done."""
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from graphile_worker._private_jobs")
        waiting = cursor.fetchone()[0]
        cursor.execute("select job_id from graphile_worker._private_py_history where result::text = '3'")
        found = cursor.fetchone()
    return tasks.add.get_result(str(found[0])) if found and not waiting and tasks.RAN else None


class Names(TransactionTestCase):
    def test_a_task_has_one_name_everywhere(self):
        with connection.cursor() as cursor:
            cursor.execute("delete from graphile_worker._private_jobs")
        names = {tasks.mail: "mails:shop.tasks.mail", tasks.note: "shop.tasks.note"}
        app = make_app()
        for task, name in names.items():
            self.assertEqual(task.identifier, name)
            self.assertIn(name, app.tasks)
            job = utils().jobs.get(int(task.enqueue("x").id))
            self.assertEqual(job.task_identifier, name)
            self.assertEqual(found(CRONTAB=f"0 4 * * * {name} {{args: ['x']}}"), [])
            with self.assertLogs("graphile_worker.worker", "INFO") as logs:
                call_command("graphile_worker", once=True)
            self.assertIn(f"task {name} (job {job.id})", "".join(logs.output))
