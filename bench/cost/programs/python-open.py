"""Opens a queue, and says how many seconds that took; then how long the first claim takes."""

import json
import sys
import time

from localqueue import SimpleQueue

start = time.perf_counter()
queue = SimpleQueue(sys.argv[1])
opened = time.perf_counter()
job = queue.get(timeout=0)
claimed = time.perf_counter()
queue.ack(job)
print(json.dumps({"openMs": (opened - start) * 1000, "claimMs": (claimed - opened) * 1000}))
