"""A fake mail service and a fake bank, as one web application. They remember what they were asked.

Cards: 4000 is declined at once, 4001 when the payment is captured, others are accepted.
Mail to addresses at greylist.example is refused once, as some mail servers do with unknown senders.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException

from ..mailer import Email


class FakeMail:
    def __init__(self) -> None:
        self.sent: dict[str, Email] = {}
        self._refused: set[str] = set()

    @property
    def subjects(self) -> list[str]:
        return [email.subject for email in self.sent.values()]

    def receive(self, email: Email, key: str) -> None:
        if email.to.endswith("@greylist.example") and key not in self._refused:
            self._refused.add(key)
            raise HTTPException(503, "try again later")
        if key not in self.sent:
            self.sent[key] = email
            print(f"e-mail to {email.to}: {email.subject}", flush=True)


class FakeBank:
    def __init__(self) -> None:
        self.cards: dict[str, str] = {}
        self.captured: set[str] = set()

    def authorize(self, card: str) -> str:
        if card == "4000":
            raise HTTPException(402, "the card was declined")
        authorization = f"authorization-{len(self.cards) + 1}"
        self.cards[authorization] = card
        return authorization

    def capture(self, authorization: str) -> None:
        if self.cards.get(authorization) == "4001":
            raise HTTPException(402, "the account has no money left")
        self.captured.add(authorization)


def make_fakes(mail: FakeMail | None = None, bank: FakeBank | None = None) -> FastAPI:
    the_mail, the_bank = mail or FakeMail(), bank or FakeBank()
    fakes = FastAPI(title="Mail service and bank")

    @fakes.post("/emails", status_code=202)
    async def receive(email: Email, idempotency_key: Annotated[str, Header()]) -> None:
        the_mail.receive(email, idempotency_key)

    @fakes.get("/emails")
    async def sent() -> list[Email]:
        return list(the_mail.sent.values())

    @fakes.post("/authorizations", status_code=201)
    async def authorize(payment: dict[str, Any]) -> dict[str, str]:
        return {"id": the_bank.authorize(payment["card"])}

    @fakes.post("/authorizations/{authorization}/capture")
    async def capture(authorization: str) -> None:
        the_bank.capture(authorization)

    return fakes
