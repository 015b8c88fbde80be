"""ask_for_review: scheduled, a week after the payment."""

from __future__ import annotations

from dataclasses import dataclass

from graphile_worker import JobHelpers, WorkerUtils, task

from ..database import Database
from ..mailer import Email
from ..models import Customer, Order, Product
from .emails import send_email


@dataclass
class AskForReview:
    order_id: int


@task
async def ask_for_review(payload: AskForReview, helpers: JobHelpers) -> None:
    async with helpers.extension(Database).transaction() as session:
        order = await session.get_one(Order, payload.order_id)
        customer = await session.get_one(Customer, order.customer_id)
        product = await session.get_one(Product, order.sku)
        email = Email(customer.email, f"How do you like {product.name}?", "Tell us!")
        await WorkerUtils.bound(session).add_job(send_email, email)
