"""write_invoice: runs in a named queue, so that a customer's invoices are numbered without gaps."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from graphile_worker import JobHelpers, WorkerUtils, task

from ..database import Database
from ..mailer import Email
from ..models import Customer, Invoice, Order, Product
from .emails import send_email


@dataclass
class InvoiceOrder:
    order_id: int


@task
async def write_invoice(payload: InvoiceOrder, helpers: JobHelpers) -> None:
    async with helpers.extension(Database).transaction() as session:
        if await session.get(Invoice, payload.order_id) is not None:
            return  # an earlier attempt was committed
        order = await session.get_one(Order, payload.order_id)
        customer = await session.get_one(Customer, order.customer_id)
        product = await session.get_one(Product, order.sku)
        # Safe without a lock: no other job of this customer's queue is running.
        count = select(func.count()).where(Invoice.customer_id == customer.id)
        number = 1 + (await session.scalar(count) or 0)
        text = invoice_text(number, customer, order, product)
        session.add(Invoice(order_id=order.id, customer_id=customer.id, number=number, text=text))
        jobs = WorkerUtils.bound(session)
        await jobs.add_job(send_email, Email(customer.email, f"Invoice {number}", text))
        # An executable, scripts/archive_invoice.sh, so it is added by name.
        await jobs.add_job("archive_invoice", {"text": text}, job_key=f"invoice-{order.id}", max_attempts=5)


def invoice_text(number: int, customer: Customer, order: Order, product: Product) -> str:
    return (
        f"Invoice {customer.id}-{number} for {customer.name}\n\n"
        f"{order.quantity} x {product.name:30} {order.cents / 100:10.2f}\n"
    )
