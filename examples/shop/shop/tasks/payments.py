"""charge_card: few attempts, and a transaction that changes the order and adds the next jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from graphile_worker import JobHelpers, WorkerUtils, task

from ..bank import Bank, DeclinedError
from ..database import Database
from ..mailer import Email
from ..models import Customer, Order
from .emails import send_email
from .invoices import InvoiceOrder, write_invoice
from .reviews import AskForReview, ask_for_review


@dataclass
class ChargeCard:
    order_id: int


@task(max_attempts=5)
async def charge_card(payload: ChargeCard, helpers: JobHelpers) -> None:
    async with helpers.extension(Database).transaction() as session:
        order = await session.get_one(Order, payload.order_id, with_for_update=True)
        if order.status != "placed":
            return  # an earlier attempt got this far
        try:
            await helpers.extension(Bank).capture(order.authorization)
        except DeclinedError as error:  # any other error fails the attempt, and the job is retried
            helpers.logger.warning("order %d: %s", order.id, error)
            await _payment_failed(session, order)
        else:
            await _paid(session, order)


async def _paid(session: AsyncSession, order: Order) -> None:
    order.status = "paid"
    jobs = WorkerUtils.bound(session)
    # A named queue for each customer: their invoices are written one after the other, others in parallel.
    await jobs.add_job(write_invoice, InvoiceOrder(order.id), queue_name=f"customer-{order.customer_id}")
    await jobs.add_job(ask_for_review, AskForReview(order.id), run_at=timedelta(days=7))


async def _payment_failed(session: AsyncSession, order: Order) -> None:
    order.status = "payment failed"
    customer = await session.get_one(Customer, order.customer_id)
    email = Email(customer.email, f"Order {order.id}: payment failed", "Please use another card.")
    await WorkerUtils.bound(session).add_job(send_email, email)
