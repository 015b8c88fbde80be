"""Orders. If the card is declined, neither the order nor its jobs are committed."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict, Field

from graphile_worker import WorkerUtils

from ..bank import DeclinedError
from ..mailer import Email
from ..models import Customer, Invoice, Order, Product
from ..tasks.emails import send_email
from ..tasks.payments import ChargeCard, charge_card
from .dependencies import Session, TheBank, find

router = APIRouter(prefix="/orders")


class NewOrder(BaseModel):
    customer_id: int
    sku: str
    quantity: int = Field(default=1, gt=0)
    card: str


class OrderView(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    id: int
    customer_id: int
    sku: str
    quantity: int
    cents: int
    status: str


@router.post("", status_code=201, response_model=OrderView)
async def place_order(new: NewOrder, session: Session, bank: TheBank) -> Order:
    customer = await find(session, Customer, new.customer_id)
    product = await find(session, Product, new.sku)
    order = Order(
        customer_id=customer.id,
        sku=product.sku,
        quantity=new.quantity,
        cents=product.cents * new.quantity,
    )
    session.add(order)
    await session.flush()  # now order.id is known

    # Both jobs belong to the transaction of the request. No worker sees them before the commit.
    jobs = WorkerUtils.bound(session)
    email = Email(customer.email, f"Order {order.id}", f"You have ordered {new.quantity} x {product.name}.")
    await jobs.add_job(send_email, email)
    await jobs.add_job(charge_card, ChargeCard(order.id))

    # The bank comes last. If the commit fails after this, no job captures the payment, and it expires.
    try:
        order.authorization = await bank.authorize(new.card, order.cents)
    except DeclinedError as error:
        raise HTTPException(402, str(error)) from error  # rolls everything back
    return order


@router.get("/{order_id}", response_model=OrderView)
async def show_order(order_id: int, session: Session) -> Order:
    return await find(session, Order, order_id)


@router.get("/{order_id}/invoice")
async def show_invoice(order_id: int, session: Session) -> dict[str, str]:
    invoice = await find(session, Invoice, order_id)
    return {"text": invoice.text}
