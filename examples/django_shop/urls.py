"""The API of the shop, and the admin."""

from django.contrib import admin
from django.urls import path
from orders.views import order, place_order

urlpatterns = [
    path("orders/", place_order),
    path("orders/<int:number>/", order),
    path("admin/", admin.site.urls),
]
