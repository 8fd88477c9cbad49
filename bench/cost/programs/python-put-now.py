"""Puts what the time is, again and again with pauses."""

import json
import sys
import time

from localqueue import SimpleQueue

queue = SimpleQueue(sys.argv[1])
for _ in range(int(sys.argv[2])):
    time.sleep(0.02)
    queue.put({"at": time.time() * 1000})
print(json.dumps("done"))
