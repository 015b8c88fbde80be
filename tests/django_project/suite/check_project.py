"""Checks, migrations and settings."""

import io

from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection
from django.test import SimpleTestCase, TransactionTestCase, modify_settings, override_settings

from graphile_worker import JobSpec
from graphile_worker.contrib.django import add_job, add_jobs
from graphile_worker.contrib.django.conf import connection_string, worker_settings
from graphile_worker.contrib.django.tasks import task_backends


class Elsewhere:
    """A router."""

    def db_for_write(self, model, **hints):
        return "elsewhere"


class AddedTasks:
    """A plugin that notes which jobs are added."""

    seen = []

    def install(self, hooks):
        hooks.watch_adds(self)

    def before(self, specs):
        self.seen.extend(spec.task_identifier for spec in specs)
        return specs, None

    def after(self, state, jobs, error):
        self.seen.append(len(jobs))


class Project(TransactionTestCase):
    def test_plugins_of_the_site_watch_its_adds(self):
        with override_settings(GRAPHILE_WORKER={"CLIENT_PLUGINS": ["suite.check_project.AddedTasks"]}):
            add_job("a")
            add_jobs([JobSpec("b"), JobSpec("b")])
        add_job("c")
        self.assertEqual(AddedTasks.seen, ["a", 1, "b", "b", 2])

    def test_checks_and_migrations_are_clean(self):
        call_command("check", databases=["default"], fail_level="ERROR", stdout=io.StringIO())
        call_command("makemigrations", check=True, dry_run=True, stdout=io.StringIO())

    def test_a_missing_schema_is_found(self):
        with override_settings(GRAPHILE_WORKER={"SCHEMA": "elsewhere"}):
            found = run_checks(databases=["default"])
        self.assertIn("graphile_worker.W003", [each.id for each in found])

    def test_a_schema_that_is_older_is_found_and_upgraded(self):
        newest = "(select max(id) from graphile_worker._private_py_migrations)"
        with connection.cursor() as cursor:
            cursor.execute(f"delete from graphile_worker._private_py_migrations where id = {newest}")
        (found,) = [each for each in run_checks(databases=["default"]) if each.id == "graphile_worker.W003"]
        self.assertIn("is older", found.msg)
        call_command("migrate", verbosity=0)
        self.assertNotIn("graphile_worker.W003", [each.id for each in run_checks(databases=["default"])])

    def test_the_worker_uses_the_test_database(self):
        self.assertIn(connection.settings_dict["NAME"], connection_string())


class Settings(SimpleTestCase):
    def test_unknown_keys_are_refused(self):
        for wrong, hint in (({"DATABSE": "x"}, "DATABASE"), ({"OPTIONS": {"concurency": 1}}, "concurrency")):
            with (
                override_settings(GRAPHILE_WORKER=wrong),
                self.assertRaisesMessage(ImproperlyConfigured, hint),
            ):
                worker_settings()
            with override_settings(GRAPHILE_WORKER=wrong):
                self.assertIn("graphile_worker.E003", [each.id for each in run_checks()])

    def test_a_setting_that_is_changed_is_read_again(self):
        options = {"concurrency": 3}
        with override_settings(GRAPHILE_WORKER={"OPTIONS": options}):
            self.assertEqual(worker_settings().worker_options.concurrency, 3)
            self.assertIs(worker_settings(), worker_settings())
            options["concurrency"] = 4
            self.assertEqual(worker_settings().worker_options.concurrency, 4)
        self.assertEqual(worker_settings().worker_options.concurrency, 1)

    def test_unknown_databases_are_refused(self):
        with override_settings(GRAPHILE_WORKER={"DATABASE": "nowhere"}):
            self.assertIn("graphile_worker.E002", [each.id for each in run_checks()])

    def test_the_application_must_be_installed(self):
        with modify_settings(INSTALLED_APPS={"remove": ["graphile_worker.contrib.django"]}):
            found = list(task_backends["default"].check())
        self.assertEqual([each.id for each in found], ["graphile_worker.E001"])

    def test_options_of_backends_must_be_known(self):
        backend = {"BACKEND": "graphile_worker.contrib.django.backend.GraphileWorkerBackend"}
        for options, hint in (({"RESULT_DAY": 1}, "RESULT_DAYS"), ({"RESULTS": "some"}, "failed")):
            with (
                override_settings(TASKS={"default": {**backend, "OPTIONS": options}}),
                self.assertRaisesMessage(ImproperlyConfigured, hint),
            ):
                _ = task_backends["default"]

    def test_routers_that_never_write_where_tasks_are(self):
        with override_settings(DATABASE_ROUTERS=["suite.check_project.Elsewhere"]):
            found = {each.id: each for each in run_checks()}
        self.assertIn("'elsewhere'", found["graphile_worker.W002"].hint)

    def test_queues_must_be_known(self):
        self.assertIn("graphile_worker.W001", [each.id for each in run_checks()])
