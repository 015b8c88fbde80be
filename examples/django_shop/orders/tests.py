"""Tests that run tasks in the transaction of the test: `python manage.py test`."""

from datetime import timedelta

from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import TestCase
from django.urls import reverse

from graphile_worker.contrib.django.testing import enqueued_tasks, run_tasks

from .models import Order
from .tasks import charge, count_sales


class Orders(TestCase):
    def place(self, card: str) -> Order:
        self.client.post("/orders/", {"sku": "socks", "cents": "1200", "card": card})
        return Order.objects.get()

    def test_an_order_is_charged(self) -> None:
        order = self.place("4242")
        (waiting,) = enqueued_tasks(charge)
        self.assertEqual(waiting.args, [order.pk])
        run_tasks().jobs.check()
        answer = self.client.get(f"/orders/{order.pk}/").json()
        self.assertEqual((answer["status"], answer["result"]), ("SUCCESSFUL", "charged 1200 cents"))

    def test_a_declined_card_is_not_tried_again(self) -> None:
        order = self.place("4000")
        run_tasks()
        answer = self.client.get(f"/orders/{order.pk}/").json()
        self.assertEqual((answer["status"], answer["attempts"], answer["error"]), ("FAILED", 1, "GiveUp"))

    def test_a_bank_that_is_away_is_asked_again(self) -> None:
        order = self.place("4001")
        run_tasks(until=timedelta(minutes=1))
        answer = self.client.get(f"/orders/{order.pk}/").json()
        self.assertEqual((answer["status"], answer["attempts"]), ("SUCCESSFUL", 2))

    def test_sales(self) -> None:
        self.place("4242")
        self.assertEqual(count_sales.call(), {"orders": 1, "cents": 1200})

    def test_finished_tasks_are_in_the_admin(self) -> None:
        self.place("4242")
        run_tasks()
        self.client.force_login(User.objects.create_superuser("ada"))
        page = self.client.get(reverse("admin:graphile_worker_finishedjob_changelist"))
        self.assertContains(page, "orders.tasks.charge")
        self.assertContains(page, "charged 1200 cents")

    def test_settings_and_recurring_tasks_are_right(self) -> None:
        call_command("check", fail_level="WARNING")
