"""The administration, and a view that enqueues."""

from django.contrib import admin
from django.http import HttpResponse
from django.urls import path

from shop import tasks
from shop.models import Order


def order(request):
    Order.objects.create(note=request.GET["note"])
    tasks.note.enqueue(request.GET["note"])
    if request.GET["note"] == "wrong":
        raise ZeroDivisionError
    return HttpResponse()


urlpatterns = [path("admin/", admin.site.urls), path("order/", order)]
