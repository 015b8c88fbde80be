"""Subscribers."""

from django.db import models


class Subscriber(models.Model):
    """An address, and the task that welcomes it."""

    email = models.EmailField(unique=True)
    result_id = models.CharField(max_length=64, blank=True)
