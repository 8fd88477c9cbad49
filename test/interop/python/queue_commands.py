"""What a `SimpleQueue` of any 1.x version can be told.

Options are keyword arguments of Python: `{"lease_seconds": 1, "max_retries": 0, "name": "mail"}`. Payloads that JSON
cannot carry cross as texts, which Python's own `json` reads and writes.
"""

import json

import localqueue
from localqueue import Job, SimpleQueue


def open(location, options):
    queue = open_queue(location, **options)

    def told(job):
        return {
            "id": job.id,
            "text": json.dumps(job.data),
            "attempts": job.attempts,
            "receipt": job.receipt,
            "leaseExpiresAt": job.lease_expires_at,
        }

    def held(lease):
        """A job as this process would have it, of which the other may tell no more than the id and the receipt."""
        return Job(
            id=lease["id"], data=None, attempts=0, receipt=lease["receipt"], lease_expires_at=0.0, queue=queue
        )

    def put_many(items, options={}):
        return queue.put_many([localqueue.EnqueueItem(**item) for item in items], **options)

    def extend(lease, seconds):
        job = held(lease)
        queue.extend_lease(job, seconds)
        return job.lease_expires_at

    def work_once(errors={}):
        """Handles one job; `errors` says for which payloads it fails, and how: "again" or "never"."""

        def handle(job):
            if job.data in errors:
                raise (ValueError if errors[job.data] == "never" else RuntimeError)(f"no {job.data}")

        return localqueue.Worker(queue, handle, permanent_errors=(ValueError,)).run_once()

    return {
        "work_once": work_once,
        "put": lambda data, options={}: queue.put(data, **options),
        "put_text": lambda text, options={}: queue.put(json.loads(text), **options),
        "put_many": put_many,
        "get": lambda options={}: told(queue.get(**options)),
        "ack": lambda lease: queue.ack(held(lease)),
        "nack": lambda lease, options={}: queue.nack(held(lease), **options),
        "fail": lambda lease, last_error=None: queue.fail(held(lease), last_error),
        "extend": extend,
        "reclaim": queue.reclaim_expired_leases,
        "stats": queue.stats,
        "list_failed": lambda: [told_failed(failed) for failed in queue.list_failed()],
        "retry_failed": queue.retry_failed,
        "purge": lambda older_than, options={}: queue.purge(older_than, **options),
        "diagnostics": lambda: queue.diagnostics().to_dict(),
        "check_integrity": lambda options={}: queue.check_integrity(**options).to_dict(),
        "backup": lambda directory: queue.backup(directory).to_dict(),
        "vacuum": queue.vacuum,
        "close": queue.close,
        "json_again": lambda text: json.dumps(json.loads(text)),
    }


def open_queue(location, name="default", lease_seconds=60.0, max_retries=3, **more):
    if hasattr(localqueue, "DeliveryPolicy"):
        more["delivery"] = localqueue.DeliveryPolicy(lease_seconds=lease_seconds, max_retries=max_retries)
    else:
        more.update(lease_seconds=lease_seconds, max_retries=max_retries)
    return SimpleQueue(location, name, **more)


def told_failed(failed):
    if isinstance(failed, dict):  # before 1.3
        return {**failed, "text": json.dumps(failed.pop("data"))}
    return {
        "id": failed.id,
        "text": json.dumps(failed.data),
        "raw": failed.raw_payload.decode("utf-8", "surrogateescape"),
        "attempts": failed.attempts,
        "reason": failed.reason.value,
        "category": getattr(failed, "failure_category", None),
        "last_error": failed.last_error,
        "decode_error": failed.decode_error,
        "created_at": failed.created_at,
        "updated_at": failed.updated_at,
    }
