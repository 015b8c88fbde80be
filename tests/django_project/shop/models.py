"""Orders, to be written in the transactions that add jobs."""

from django.db import models


class Order(models.Model):
    """One order."""

    note = models.TextField()
