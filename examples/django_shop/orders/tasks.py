"""What runs in the background.

A task of Django's has the path of its function as its name, such as `orders.tasks.charge`; one of Graphile
Worker has its identifier, `reindex`. Lists, logs, the admin and crontabs use these names.
"""

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Sum
from django.utils import timezone

from graphile_worker import GiveUp, JobHelpers, get_current_helpers
from graphile_worker import task as worker_task
from graphile_worker.contrib.django import task

from .models import Order


class BankIsAway(Exception):
    """The bank does not answer."""


@task(max_attempts=3)
def charge(order_id: int) -> str:
    """Charge the card of an order; a card that the bank declines is not tried again."""
    order = Order.objects.get(pk=order_id)
    if order.card == "4000":
        raise GiveUp("the card was declined")
    if order.card == "4001" and get_current_helpers().job.attempts == 1:
        raise BankIsAway("no answer within a second")
    Order.objects.filter(pk=order_id).update(is_paid=True)
    send_receipt.enqueue(order_id)
    return f"charged {order.cents} cents"


@task(queue_name="mails")
async def send_receipt(order_id: int) -> None:
    order = await Order.objects.aget(pk=order_id)
    print(f"receipt for {order}", flush=True)  # a real shop sends an e-mail


@task
def count_sales(days: int = 1) -> dict[str, int]:
    """The sales of the last days."""
    since = timezone.now() - timedelta(days=days)
    found = Order.objects.filter(placed_at__gte=since).aggregate(orders=Count("pk"), cents=Sum("cents"))
    return {"orders": found["orders"], "cents": found["cents"] or 0}


@dataclass
class Reindex:
    sku: str


@worker_task(max_attempts=5)
def reindex(payload: Reindex, helpers: JobHelpers) -> None:
    """A task of Graphile Worker: typed payload, and a key so that many changes are one job."""
    helpers.logger.info("reindexing %s", payload.sku)
