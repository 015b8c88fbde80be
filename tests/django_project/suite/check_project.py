"""Checks, migrations and settings."""

import io

from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection
from django.test import SimpleTestCase, TransactionTestCase, override_settings

from graphile_worker.contrib.django.conf import connection_string, worker_settings


class Project(TransactionTestCase):
    def test_checks_and_migrations_are_clean(self):
        call_command("check", databases=["default"], fail_level="ERROR", stdout=io.StringIO())
        call_command("makemigrations", check=True, dry_run=True, stdout=io.StringIO())

    def test_a_missing_schema_is_found(self):
        with override_settings(GRAPHILE_WORKER={"SCHEMA": "elsewhere"}):
            found = run_checks(databases=["default"])
        self.assertIn("graphile_worker.W003", [each.id for each in found])

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

    def test_unknown_databases_are_refused(self):
        with override_settings(GRAPHILE_WORKER={"DATABASE": "nowhere"}):
            self.assertIn("graphile_worker.E002", [each.id for each in run_checks()])

    def test_queues_must_be_known(self):
        self.assertIn("graphile_worker.W001", [each.id for each in run_checks()])
