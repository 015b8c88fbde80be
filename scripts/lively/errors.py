"""The errors of the shop: what failed, where, since which version."""

from __future__ import annotations

from dataclasses import dataclass

from graphile_worker.history.error_groups import fingerprint, place_in

TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/.venv/lib/python3.12/site-packages/graphile_worker/worker/execute.py", line 88, in execute
    result = await task.call(payload, helpers)
  File "/srv/shop/.venv/lib/python3.12/site-packages/graphile_worker/tasks/call.py", line 41, in call
    return await function(payload)
{frames}
{error_type}: {message}
"""


@dataclass(frozen=True)
class ShopError:
    """One kind of error."""

    task: str
    error_type: str
    message: str
    frames: str
    since: float
    """Minutes since it was first seen."""
    jobs: int
    """How many jobs have it now."""
    permanent: int
    """How many of these used all their attempts."""
    attempts: int
    """How often it occurred."""
    version: str | None = None
    """The first version that had it, if it is new."""

    @property
    def traceback(self) -> str:
        return TRACEBACK.format(
            frames=self.frames.strip("\n"), error_type=self.error_type, message=self.message
        )

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.task, self.error_type, self.message, self.traceback)

    @property
    def place(self) -> str:
        return place_in(self.traceback)

    @property
    def text(self) -> str:
        """As `last_error` has it: the message first, then where it was raised."""
        return f"{self.error_type}: {self.message}\n{self.traceback}"


ERRORS = (
    ShopError(
        "send_email", "SMTPServerDisconnected", "Connection unexpectedly closed",
        """
  File "/srv/shop/shop/tasks/email.py", line 41, in send_email
    await smtp.send_message(message)
  File "/srv/shop/.venv/lib/python3.12/site-packages/aiosmtplib/smtp.py", line 512, in send_message
    return await self.sendmail(sender, recipients, text)
  File "/srv/shop/.venv/lib/python3.12/site-packages/aiosmtplib/protocol.py", line 236, in execute_command
    raise SMTPServerDisconnected("Connection unexpectedly closed")""",
        since=26, jobs=640, permanent=180, attempts=1240, version="1.4.2",
    ),
    ShopError(
        "charge_card", "GatewayTimeout", "no answer after 30 s",
        """
  File "/srv/shop/shop/tasks/payment.py", line 77, in charge_card
    answer = await gateway.charge(order, within=30)
  File "/srv/shop/shop/gateway.py", line 132, in charge
    raise GatewayTimeout(f"no answer after {within} s")""",
        since=3 * 24 * 60, jobs=11, permanent=0, attempts=17,
    ),
    ShopError(
        "sync_crm", "KeyError", "'vat_number'",
        """
  File "/srv/shop/shop/tasks/crm.py", line 23, in sync_crm
    record = customer_record(customer)
  File "/srv/shop/shop/crm/records.py", line 58, in customer_record
    vat=customer["vat_number"],""",
        since=5 * 24 * 60, jobs=4, permanent=4, attempts=100,
    ),
    ShopError(
        "deliver_webhook", "HTTPStatusError", "502 Bad Gateway for https://hooks.example/ada",
        """
  File "/srv/shop/shop/tasks/webhooks.py", line 35, in deliver_webhook
    answer.raise_for_status()
  File "/srv/shop/.venv/lib/python3.12/site-packages/httpx/_models.py", line 829, in raise_for_status
    raise HTTPStatusError(message, request=request, response=self)""",
        since=9 * 24 * 60, jobs=19, permanent=2, attempts=412,
    ),
    ShopError(
        "import_orders", "UnicodeDecodeError", "'utf-8' codec can't decode byte 0xe4 in position 1182",
        """
  File "/srv/shop/shop/tasks/orders.py", line 19, in import_orders
    rows = read_rows(payload["file"])
  File "/srv/shop/shop/orders/reading.py", line 12, in read_rows
    return list(csv.DictReader(path.read_text().splitlines()))""",
        since=26 * 60, jobs=3, permanent=3, attempts=75,
    ),
)  # fmt: skip
