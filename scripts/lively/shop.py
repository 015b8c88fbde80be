"""The shop whose jobs are shown: its tasks, their pace and their usual run times."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

DEPLOYED = 28
"""Minutes since version 1.4.2 was deployed."""
FAILING = 26
"""Minutes since `send_email` fails."""
OLD_VERSION, NEW_VERSION = "1.4.1", "1.4.2"


@dataclass(frozen=True)
class ShopTask:
    """One task, as the statistics show it."""

    name: str
    per_minute: float
    seconds: float
    """The median run time."""
    failing: float = 0.0
    """The share of attempts that fail on an ordinary day."""
    queue: str | None = None


TASKS = (
    ShopTask("send_email", 61, 0.35, 0.004),
    ShopTask("resize_image", 120, 0.18),
    ShopTask("index_product", 58, 0.04),
    ShopTask("deliver_webhook", 31, 0.6, 0.02),
    ShopTask("charge_card", 22, 0.9, 0.01),
    ShopTask("sync_crm", 6, 1.6, 0.015, "crm"),
    ShopTask("generate_invoice", 4, 2.4, 0.0, "invoices"),
    ShopTask("import_orders", 1.5, 9.0, 0.005, "imports"),
    ShopTask("export_report", 0.2, 24.0, 0.0),
    ShopTask("prune_sessions", 0.2, 0.8),
    ShopTask("reconcile_stock", 0.1, 12.0, 0.0, "stock"),
    ShopTask("nightly_report", 0.002, 41.0),
)
FIRST_NAMES = ("ada", "grace", "linus", "barbara", "ken", "radia", "edsger", "frances", "tony", "margaret")
COUNTRIES = ("DE", "FR", "GB", "US", "NL", "SE", "CH", "JP")


def pace(minutes_ago: float) -> float:
    """How busy the shop was, around 1: less at night. Now it is ten in the morning, whenever that is."""
    hour = 10 - minutes_ago / 60
    day = 0.8 + 0.35 * math.sin((hour - 7) / 24 * 2 * math.pi) + 0.1 * math.sin((hour - 5) / 12 * 2 * math.pi)
    return max(0.25, day)


def payload_of(task: str, rng: random.Random) -> dict[str, Any]:
    """A payload such as this task gets."""
    person, number = rng.choice(FIRST_NAMES), rng.randrange(1000, 99999)
    order = {"order_id": number, "country": rng.choice(COUNTRIES), "total": f"{rng.uniform(8, 420):.2f}"}
    match task:
        case "send_email":
            template = rng.choice(("welcome", "receipt", "shipped", "password_reset"))
            token = f"{rng.getrandbits(96):024x}"
            to = f"{person}.{number}@example.com"
            return {"to": to, "template": template, "user_id": number, "token": token}
        case "resize_image":
            return {"image": f"products/{number}.jpg", "sizes": [320, 640, 1280], "quality": 82}
        case "charge_card":
            return order | {"card": {"last_four": f"{number % 10000:04d}", "token": f"tok_{number:x}"}}
        case "sync_crm":
            return {"customer": {"id": number, "name": person.title()}, "country": "CH"}
        case "deliver_webhook":
            return {"url": f"https://hooks.example/{person}", "event": "order.paid", "order_id": number}
        case _:
            return order
