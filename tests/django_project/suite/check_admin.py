"""Django's admin, through its test client."""

from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection
from django.test import TransactionTestCase
from django.urls import reverse
from django.utils import timezone

from graphile_worker.contrib.django import add_job, utils
from graphile_worker.contrib.django.models import FinishedJob, Job, Worker
from shop import tasks

JOBS = reverse("admin:graphile_worker_job_changelist")
FINISHED = reverse("admin:graphile_worker_finishedjob_changelist")


class Admin(TransactionTestCase):
    def setUp(self):
        with connection.cursor() as cursor:
            cursor.execute("delete from graphile_worker._private_jobs")
            cursor.execute("delete from graphile_worker._private_py_history")
        self.user = User.objects.create_user("ada", password="x", is_staff=True)
        self.allow("view_job", "view_worker", "view_finishedjob")
        self.client.force_login(self.user)

    def allow(self, *names):
        self.user.user_permissions.add(*Permission.objects.filter(codename__in=names))

    def act(self, action, *ids):
        data = {"action": action, "_selected_action": ids}
        return self.client.post(JOBS, data, follow=True).content.decode()

    def test_lists_and_filters(self):
        failed = add_job("charge", {}, job_key="k")
        utils().permanently_fail_jobs([failed.id], "no money")
        tasks.add.enqueue(1)
        page = self.client.get(JOBS).content.decode()
        self.assertIn("charge", page)
        self.assertIn("shop.tasks.add", page)
        for state, shown in (("failed", "charge"), ("ready", "shop.tasks.add")):
            page = self.client.get(JOBS, {"state": state}).content.decode()
            self.assertIn(shown, page)
            self.assertIn("1 job", page)
        page = self.client.get(JOBS, {"task": "charge"}).content.decode()
        self.assertIn("1 job", page)
        self.assertIn('<td class="field-error">no money</td>', page)
        detail = reverse("admin:graphile_worker_job_change", args=[failed.id])
        self.assertIn("no money", self.client.get(detail).content.decode())
        self.assertIn("charge", self.client.get(JOBS, {"q": "k"}).content.decode())
        self.assertEqual(self.client.get(reverse("admin:graphile_worker_worker_changelist")).status_code, 200)

    def test_how_many_attempts_there_were(self):
        gave_up = add_job("charge", {}, max_attempts=4, keep=True)
        unknown = add_job("charge", {}, max_attempts=4)
        utils().reschedule_jobs([gave_up.id, unknown.id], attempts=1)
        utils().permanently_fail_jobs([gave_up.id, unknown.id])
        page = self.client.get(JOBS).content.decode()
        self.assertIn("gave up on attempt 1 of 4", page)
        self.assertNotIn("4 of 4", page)
        detail = reverse("admin:graphile_worker_job_change", args=[gave_up.id])
        self.assertIn("gave up on attempt 1 of 4", self.client.get(detail).content.decode())

    def test_the_payload_needs_a_permission(self):
        job = add_job("charge", {"card": "4111"})
        address = reverse("admin:graphile_worker_job_change", args=[job.id])
        self.assertNotIn("4111", self.client.get(address).content.decode())
        self.allow("view_payload")
        self.assertIn("4111", self.client.get(address).content.decode())

    def test_actions(self):
        job = add_job("charge", {})
        self.assertNotIn("give_up", self.client.get(JOBS).content.decode())
        self.act("give_up", job.id)
        self.assertEqual(utils().jobs.get(job.id).attempts, 0)
        self.allow("manage_jobs")
        self.assertIn("1 job given up", self.act("give_up", job.id))
        self.assertEqual(utils().jobs.get(job.id).last_error, "given up by ada")
        self.assertIn("1 job retried", self.act("retry", job.id))
        self.assertEqual(utils().jobs.get(job.id).state, "ready")
        self.assertIn("1 job due now", self.act("run_now", job.id))
        with connection.cursor() as cursor:
            cursor.execute("update graphile_worker._private_jobs set locked_at = now(), locked_by = 'x'")
        self.assertIn("1 job left alone", self.act("delete_jobs", job.id))
        with connection.cursor() as cursor:
            cursor.execute("update graphile_worker._private_jobs set locked_at = null, locked_by = null")
        self.assertIn("1 job deleted", self.act("delete_jobs", job.id))
        self.assertFalse(Job.objects.exists())

    def test_finished_jobs_have_results_and_errors(self):
        added, mailed = tasks.add.enqueue(20, b=22), tasks.mail.enqueue("secret words")
        cancelled = tasks.note.enqueue("never")
        utils().cancel_jobs([int(cancelled.id)])
        failed = tasks.fails.enqueue("no such order")
        call_command("graphile_worker", once=True)
        page = self.client.get(FINISHED).content.decode()
        for shown in ("shop.tasks.add", "mails:shop.tasks.mail", ">completed<", ">cancelled<", ">42<"):
            self.assertIn(shown, page)
        page = self.client.get(FINISHED, {"state": "cancelled"}).content.decode()
        self.assertIn("shop.tasks.note", page)
        self.assertIn("1 finished job", page)
        page = self.client.get(FINISHED, {"task": "shop.tasks.add", "q": added.id}).content.decode()
        self.assertIn("1 finished job", page)
        detail = reverse("admin:graphile_worker_finishedjob_change", args=[mailed.id])
        page = self.client.get(detail).content.decode()
        self.assertIn("mails:shop.tasks.mail", page)
        self.assertNotIn("secret words", page)
        self.allow("view_payload")
        self.assertIn("secret words", self.client.get(detail).content.decode())
        for wrong in ("0", "x", "9" * 40):
            address = reverse("admin:graphile_worker_finishedjob_change", args=[wrong])
            self.assertEqual(self.client.get(address).status_code, 302)
        self.assertEqual(FinishedJob.objects.get(pk=added.id).result, 42)
        self.assertIn("ValueError: no such order", self.client.get(JOBS).content.decode())
        self.assertIn("ValueError: no such order", self.client.get(FINISHED).content.decode())
        utils().reschedule_jobs([int(failed.id)], run_at=timezone.now(), attempts=0)
        call_command("graphile_worker", once=True)
        page = self.client.get(FINISHED, {"q": failed.id}).content.decode()
        self.assertIn("2 finished jobs", page)  # it has failed twice
        detail = reverse("admin:graphile_worker_finishedjob_change", args=[failed.id])
        self.assertIn("Traceback", self.client.get(detail).content.decode())

    def test_finished_jobs_need_a_permission(self):
        self.user.user_permissions.clear()
        self.allow("view_job")
        self.assertEqual(self.client.get(FINISHED).status_code, 403)

    def test_models_are_not_written(self):
        add_job("charge", {})
        with self.assertRaisesMessage(TypeError, "utils()"):
            Job.objects.get().save()
        with self.assertRaisesMessage(TypeError, "utils()"):
            Job.objects.get().delete()
        self.assertFalse(Worker.objects.exists())
