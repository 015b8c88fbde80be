"""The API: placing an order, and how it stands."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from graphile_worker.contrib.django import add_job

from .models import Order
from .tasks import Reindex, charge, reindex


@csrf_exempt  # so that curl can order; a real site must not do this
@require_POST
def place_order(request: HttpRequest) -> JsonResponse:
    """The order and its tasks are committed together, or not at all."""
    form = request.POST
    with transaction.atomic():
        order = Order.objects.create(sku=form["sku"], cents=int(form["cents"]), card=form["card"])
        order.charge_id = charge.enqueue(order.pk).id
        order.save(update_fields=["charge_id"])
        add_job(reindex, Reindex(order.sku), job_key=f"reindex:{order.sku}")
    return JsonResponse({"id": order.pk, "task": order.charge_id}, status=201)


def order(request: HttpRequest, number: int) -> JsonResponse:
    """An order, and what became of its charge; for a page that polls."""
    found = get_object_or_404(Order, pk=number)
    result = charge.get_result(found.charge_id)
    answer = {"sku": found.sku, "status": result.status.value, "attempts": result.attempts}
    if result.is_finished and not result.errors:
        answer["result"] = result.return_value
    if result.errors:
        answer["error"] = result.errors[-1].exception_class.__name__
    return JsonResponse(answer)
