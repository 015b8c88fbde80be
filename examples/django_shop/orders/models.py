"""Orders. The types of the fields are for type checkers without a plugin for Django."""

from __future__ import annotations

from datetime import datetime

from django.db import models


class Order(models.Model):
    """What somebody has ordered, and the task that charges the card."""

    sku: models.CharField[str, str] = models.CharField(max_length=64)
    cents: models.PositiveIntegerField[int, int] = models.PositiveIntegerField()
    card: models.CharField[str, str] = models.CharField(max_length=19)
    is_paid: models.BooleanField[bool, bool] = models.BooleanField(default=False)
    charge_id: models.CharField[str, str] = models.CharField(max_length=64, blank=True)
    placed_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.sku} for {self.cents} cents"
