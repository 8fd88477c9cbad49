"""What an `EventBus` can be told. Each command makes a bus of its own, since a bus that has run takes no more handlers.

Routes are those of a topology: `{"email": ["task"]}`. What happens to an event with `does` is in `perform`.
"""

import asyncio
import dataclasses
import json
import math
import os
import signal
import threading
import time
from datetime import datetime
from uuid import UUID

from events import CLASSES
from localqueue.bus import (
    BaseEvent,
    BusTopology,
    EventBus,
    EventRegistry,
    HandlerContext,
    Reject,
    Retry,
    RetryPolicy,
    SequenceSource,
)
from localqueue.bus.identity import prepare_event_persistence
from localqueue.policies import DeliveryPolicy

LINEAGE = ("event_id", "correlation_id", "causation_id", "event_created_at")


class NoUse(Exception):
    """Is permanent."""


def open(location, options):
    routes = options["routes"]
    delivery = DeliveryPolicy(**options.get("delivery", {}))
    name = options.get("name", "default")

    def open_bus():
        registry = EventRegistry()
        for cls in CLASSES.values():
            registry.register(cls)
        return EventBus(location, name, topology=BusTopology(routes), delivery=delivery, registry=registry)

    def pick(subscriptions):
        return {subscription: routes[subscription] for subscription in subscriptions}

    def dispatch(type, data, lineage={}):
        bus = open_bus()
        try:
            receipt = bus.dispatch(make(type, data, lineage))
        finally:
            bus.close()
        return {**dataclasses.asdict(receipt), "event_id": str(receipt.event_id)}

    def run(subscriptions, idle_timeout=0.3, **settings):
        bus = open_bus()
        handled = listen(bus, pick(subscriptions), **settings)
        try:
            asyncio.run(bus.run(idle_timeout=idle_timeout))
        finally:
            bus.close()
        return handled

    def list_failed(subscription):
        bus = open_bus()
        try:
            return [told_failed(failed) for failed in bus.subscription(subscription).list_failed()]
        finally:
            bus.close()

    def retry_failed(subscription, id):
        bus = open_bus()
        try:
            bus.subscription(subscription).retry_failed(id)
        finally:
            bus.close()

    def source_of(bus, items, checkpoint, fingerprint="v1", **config):
        @bus.source(SequenceSource(items, fingerprint=fingerprint), checkpoint=checkpoint, **config)
        async def import_tasks(item):
            if item.get("breaks"):
                raise ValueError("no such task")
            if item.get("hangs"):
                await asyncio.sleep(3600)
            return make("task", item)

        return import_tasks

    def execute(items, checkpoint, timeout=None, run=(), **config):
        """`run` are the subscriptions that this process handles itself while the execution goes on."""
        bus = open_bus()
        listen(bus, pick(run))
        source = source_of(bus, items, checkpoint, **config)
        try:
            result = asyncio.run(bus.execute(source, timeout=timeout))
        finally:
            bus.close()
        return {
            field.name: told(getattr(result, field.name)) for field in dataclasses.fields(result)
        } | {"succeeded": result.succeeded}

    def ingest(items, checkpoint, **config):
        bus = open_bus()
        source = source_of(bus, items, checkpoint, **config)
        try:
            return dataclasses.asdict(asyncio.run(source.ingest()))
        finally:
            bus.close()

    def inspect(checkpoint):
        bus = open_bus()
        try:
            return dataclasses.asdict(bus.checkpoint(checkpoint).inspect())
        finally:
            bus.close()

    return {
        "dispatch": dispatch,
        "dispatch_text": lambda type, text: dispatch(type, json.loads(text)),
        "run": lambda subscriptions, options={}: run(subscriptions, **options),
        "list_failed": list_failed,
        "retry_failed": retry_failed,
        "execute": lambda items, checkpoint, options={}: execute(items, checkpoint, **options),
        "ingest": lambda items, checkpoint, options={}: ingest(items, checkpoint, **options),
        "inspect": inspect,
        "identity": identity,
        "envelope": lambda type, data, lineage={}: open_bus().serialize_envelope(make(type, data, lineage)).decode(),
    }


def make(type, data, lineage={}):
    return CLASSES[type](**data, **lineage)


def identity(type, data):
    prepared = prepare_event_persistence(make(type, data))
    return {"key": prepared.identity.dedup_key, "fingerprint": prepared.identity.dedup_fingerprint}


def listen(bus, routes, retry=None, concurrency=None, timeout=None, types=CLASSES):
    """Handles what is routed to these subscriptions, of these types; returns the list of what was handled."""
    handled = []
    lock = threading.Lock()

    def handler_of(subscription):
        def handle(event: BaseEvent, context: HandlerContext):
            payload = event.model_dump(mode="json", exclude=set(LINEAGE))
            seen = {"subscription": subscription, "type": event.event_type, "data": told(payload), "attempt": context.attempt}
            with lock:
                handled.append({**seen, **{name: told(getattr(event, name)) for name in LINEAGE}})
            return perform(getattr(event, "does", None) or {}, context.attempt)

        return handle

    async def wait_for_ever(event: BaseEvent, context: HandlerContext):
        await asyncio.sleep(3600)

    for name, routed in routes.items():
        subscription = bus.subscription(name, concurrency=concurrency)
        if retry is not None:
            subscription.config.retry = RetryPolicy.fixed(**retry)
        handler = handler_of(name) if timeout is None else wait_for_ever
        for type in routed:
            if type in types or type == "*":
                subscription.handler(type, handler, permanent_errors=(NoUse,), timeout=timeout)
    return handled


def perform(does, attempt):
    """What a handler does; `until` is the last attempt in which it does that."""
    if attempt > does.get("until", attempt):
        return None
    if "kill" in does:
        os.kill(os.getpid(), signal.SIGKILL)
    if "wait" in does:
        time.sleep(does["wait"])
    if "raise" in does:
        raise RuntimeError(does["raise"])
    if "permanent" in does:
        raise NoUse(does["permanent"])
    if "reject" in does:
        raise Reject(does["reject"], category=does.get("category"))
    if "retry" in does:
        raise Retry(does["retry"], after=does.get("after"))
    if "emit" in does:
        return make(*does["emit"])
    return does.get("return")


def told(value):
    if isinstance(value, dict):
        return {key: told(member) for key, member in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, UUID):
        return str(value)
    return value.isoformat() if isinstance(value, datetime) else value


def told_failed(failed):
    return {
        "id": failed.id,
        "subscription": failed.subscription,
        "type": failed.event_type,
        "event_id": failed.event and str(failed.event.event_id),
        "raw": failed.raw_payload.decode(),
        "attempts": failed.attempts,
        "reason": failed.reason.value,
        "category": failed.failure_category,
        "last_error": failed.last_error,
        "inspection_error": failed.inspection_error,
    }
