"""Takes jobs that say when they were put, and says how long each was on its way."""

import json
import sys
import time

from localqueue import SimpleQueue

queue = SimpleQueue(sys.argv[1])
print(json.dumps("open"), flush=True)
for _ in range(int(sys.argv[2])):
    job = queue.get()
    print(json.dumps(time.time() * 1000 - job.data["at"]), flush=True)
    queue.ack(job)
