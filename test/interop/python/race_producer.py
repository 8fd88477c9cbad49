"""Puts its jobs, one call after the other, and says how far it is."""

import json
import sys
import time

from history import History
from localqueue import EnqueueItem, LocalQueueError, SimpleQueue

given = json.loads(sys.argv[1])
history = History(given["history"])
queue = SimpleQueue(given["location"], max_pending_jobs=given["maxPendingJobs"])

for batch in json.loads(sys.stdin.readline()):
    ids = [job["jobId"] for job in batch]
    for id in ids:
        history.invoke("put", job=id)
    while True:
        try:
            if len(batch) == 1:
                rows = [queue.put(batch[0], job_id=ids[0])]
            else:
                rows = queue.put_many([EnqueueItem(job, job_id=job["jobId"]) for job in batch])
            break
        except LocalQueueError as error:
            # Its calls wait five seconds at most for others who write.
            if "locked" not in str(error):
                raise
            time.sleep(0.01)
    for id, row in zip(ids, rows):
        history.ok("put", job=id, id=row)
    print(json.dumps({"say": "put"}), flush=True)
print(json.dumps({"say": "all put"}), flush=True)
sys.stdin.read()
queue.close()
