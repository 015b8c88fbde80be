"""Customers. Signing up adds a job in the transaction of the request."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict
from sqlalchemy.exc import IntegrityError

from graphile_worker import WorkerUtils

from ..mailer import Email
from ..models import Customer
from ..tasks.emails import send_email
from .dependencies import Session, find

router = APIRouter(prefix="/customers")


class NewCustomer(BaseModel):
    name: str
    email: str


class CustomerView(NewCustomer):
    model_config = ConfigDict(from_attributes=True)
    id: int


@router.post("", status_code=201, response_model=CustomerView)
async def sign_up(new: NewCustomer, session: Session) -> Customer:
    customer = Customer(name=new.name, email=new.email)
    session.add(customer)
    try:
        await session.flush()
    except IntegrityError as error:
        raise HTTPException(409, "this e-mail address is taken") from error
    email = Email(customer.email, "Welcome", f"Hello {customer.name}, have fun shopping!")
    await WorkerUtils.bound(session).add_job(send_email, email)
    return customer


@router.get("/{customer_id}", response_model=CustomerView)
async def show_customer(customer_id: int, session: Session) -> Customer:
    return await find(session, Customer, customer_id)
