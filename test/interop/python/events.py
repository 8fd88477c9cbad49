"""Events that both languages know: test/interop/support/events.ts has the same."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from localqueue.bus import BaseEvent, event
from pydantic import ConfigDict


class Task(BaseEvent):
    """Its handler does what it says."""

    event_name = "task"
    n: int
    does: dict[str, Any] | None = None


@event(identity="order_id")
class OrderPaid(BaseEvent):
    event_name = "order.paid"
    order_id: str
    cents: int


@event(identity=("tenant", "key"))
class Anything(BaseEvent):
    event_name = "anything"
    schema_version = 2
    model_config = ConfigDict(extra="allow")
    tenant: Any
    key: Any


@event(identity="name")
class Measured(BaseEvent):
    event_name = "measured"
    name: str
    count: int
    value: float


class Reading(BaseEvent):
    event_name = "reading"
    value: float


@event(identity="number")
class Invoice(BaseEvent):
    event_name = "invoice"
    number: Decimal
    total: Decimal
    due: date
    sent_at: datetime
    within: timedelta
    customer: UUID


class Unheard(BaseEvent):
    """Of a kind that only this language knows."""

    event_name = "only.python"
    n: int


CLASSES = {cls.event_name: cls for cls in (Task, OrderPaid, Anything, Measured, Reading, Invoice, Unheard)}
