"""Claims jobs and does with each what it asks for, by hand or with a Worker, until its input is closed."""

import json
import logging
import sys
import threading
import time

from history import History
from localqueue import Empty, LeaseExpired, LocalQueueError, SimpleQueue, Worker
from localqueue.policies import DeliveryPolicy

given = json.loads(sys.argv[1])
history = History(given["history"])
queue = SimpleQueue(given["location"], delivery=DeliveryPolicy(lease_seconds=given["leaseMs"] / 1000))
over = threading.Event()
logging.disable()  # the worker tells of every failure


def watch_input() -> None:
    sys.stdin.read()
    over.set()


def verdict(job) -> str:
    """How this delivery is to be settled."""
    does = job.data["does"]
    return "nack" if does == "nack once" and job.attempts == 0 else {"nack once": "ack"}.get(does, does)


def about(job) -> dict:
    return {"job": job.data["jobId"], "id": job.id, "attempt": job.attempts + 1, "receipt": job.receipt}


def is_locked(error: LocalQueueError) -> bool:
    return "locked" in str(error) or "busy" in str(error)


def by_hand() -> None:
    while not over.is_set():
        history.invoke("claim")
        try:
            job = queue.get(timeout=0.2)
        except Empty:
            history.refused("claim")
            continue
        except LocalQueueError as error:
            if not is_locked(error):
                raise
            history.refused("claim", error=str(error))
            continue
        history.ok("claim", **about(job))
        op = verdict(job)
        history.invoke(op, **about(job))
        try:
            if op == "ack":
                queue.ack(job)
            elif op == "nack":
                queue.nack(job, last_error="once more")
            else:
                queue.fail(job, last_error="no use")
            history.ok(op, **about(job))
        except LeaseExpired:
            history.refused(op, **about(job))


class NoUse(Exception):
    pass


def with_worker() -> None:
    def handle(job) -> None:
        history.ok("claim", **about(job))
        op = verdict(job)
        # The worker does not tell what came of it.
        history.unknown(op, **about(job))
        if op == "nack":
            raise RuntimeError("once more")
        if op == "fail":
            raise NoUse("no use")

    worker = Worker(queue, handle, permanent_errors=(NoUse,))
    while not over.is_set():
        history.invoke("claim")
        try:
            if not worker.run_once():
                history.refused("claim")
                time.sleep(0.01)
        except LocalQueueError as error:
            if not is_locked(error):
                raise


threading.Thread(target=watch_input, daemon=True).start()
print(json.dumps({"say": "running"}), flush=True)
by_hand() if given["byHand"] else with_worker()
queue.close()
