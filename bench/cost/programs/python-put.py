"""Puts one job after the other for some seconds, and says how many, the longest put, and how many failed."""

import json
import sys
import time

from localqueue import LocalQueueError, SimpleQueue

queue = SimpleQueue(sys.argv[1], "python")
payload = {"task": "send-email", "to": "hello@example.com", "text": "x" * 50}
print(json.dumps("open"), flush=True)
end = time.perf_counter() + float(sys.argv[2])
times, failed = [], 0
while time.perf_counter() < end:
    start = time.perf_counter()
    try:
        queue.put(payload)
    except LocalQueueError:
        failed += 1
    times.append((time.perf_counter() - start) * 1000)
times.sort()
print(json.dumps({"puts": len(times), "failed": failed, "longestMs": times[-1], "medianMs": times[len(times) // 2]}))
