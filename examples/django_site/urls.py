"""One page."""

from django.urls import path
from newsletter.views import subscribe

urlpatterns = [path("", subscribe)]
