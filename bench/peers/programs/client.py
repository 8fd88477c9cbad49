"""A process of the Python package: does the same as client.mjs."""

import json
import os
import random
import resource
import sys
import threading
import time

from localqueue import DurabilityMode, SimpleQueue, Worker

REPORT_S = 0.02
RSS_EVERY = 5_000
TASK = {"task": "send-email", "to": "hello@example.com"}
OTHER_BYTES = 68

options = json.loads(sys.argv[1])
out = os.fdopen(3, "w")
saying = threading.Lock()


def now():
    return time.time() * 1000


def say(message):
    with saying:
        out.write(json.dumps(message) + "\n")
        out.flush()


def payload_of(n, size=100):
    return {**TASK, "n": n, "text": "x" * (size - OTHER_BYTES)}


class Work:
    """A worker in a thread of its own, and what its handler notes."""

    def __init__(self, queue, counts=None):
        self.handled = 0
        self.ids = []
        self.times = []
        self.counts = counts
        self.over = threading.Event()
        self.worker = Worker(queue, self.handle, poll_interval=0.5)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.reporter = threading.Thread(target=self.report, daemon=True)
        self.thread.start()
        self.reporter.start()

    def run(self):
        try:
            self.worker.run()
        except Exception as error:
            say({"error": repr(error)})

    def handle(self, job):
        n = job.data["n"]
        if self.counts is None:
            self.times.append(now())
            self.ids.append(n)
        else:
            self.counts[n] += 1
        self.handled += 1

    def report(self):
        while not self.over.wait(REPORT_S):
            say({"handled": self.handled})

    def stop(self):
        self.worker.stop()
        self.thread.join()
        self.over.set()
        self.reporter.join()


class Client:
    def __init__(self):
        mode = DurabilityMode.DURABLE if options["mode"].get("fsync") else DurabilityMode.RELAXED
        self.queue = SimpleQueue(options["place"]["directory"], durability=mode)
        self.current = None

    def put(self, first, count=None, forMs=float("inf"), batch=None, bytes=100, lanes=1):
        started = now()
        end = float("inf") if count is None else first + count
        n = first
        while n < end and now() - started < forMs:
            if batch is None:
                self.queue.put(payload_of(n, bytes))
                n += 1
            else:
                last = int(min(n + batch, end))
                self.queue.put_many([payload_of(i, bytes) for i in range(n, last)])
                n = last
        return {"count": n - first, "tookMs": now() - started, "startedAt": started}

    def pace(self, first, count, pauseMs):
        times = []
        for n in range(first, first + count):
            time.sleep(pauseMs * (0.3 + random.random() * 1.4) / 1000)
            payload = payload_of(n)
            times.append(now())
            self.queue.put(payload)
        return {"times": times}

    def churn(self, count, batch, slots, forMs):
        started = now()
        counts = bytearray(count + batch)
        work = self.current = Work(self.queue, counts)
        samples, put, sample_at = [], 0, 0
        while put < count and now() - started < forMs:
            put += self.put(put, batch, batch=batch)["count"]
            while work.handled < put - batch:
                time.sleep(0.001)
            if work.handled >= sample_at:
                sample_at = work.handled + RSS_EVERY
                with open("/proc/self/statm", encoding="ascii") as file:
                    samples.append([work.handled, int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")])
        while work.handled < put:
            time.sleep(0.001)
        work.stop()
        wrong = sum(1 for times in counts[:put] if times != 1)
        return {"samples": samples, "handled": work.handled, "wrong": wrong}

    def cpu(self):
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {"cpuMs": (usage.ru_utime + usage.ru_stime) * 1000, "at": now()}

    def work(self, **_):
        self.current = Work(self.queue)

    def stop(self):
        self.current.stop()
        return {"ids": self.current.ids, "times": self.current.times}

    def left(self):
        stats = self.queue.stats()
        return {"left": stats["ready"] + stats["processing"]}

    def durability(self):
        report = self.queue.diagnostics()
        return {"durability": f"synchronous = {report.synchronous}, journal_mode = {report.journal_mode}"}

    def close(self):
        self.queue.close()


try:
    client = Client()
    say({"ok": {}})
    for line in sys.stdin:
        order = json.loads(line)
        command = order.pop("command")
        say({"ok": getattr(client, command)(**order) or {}})
        if command == "close":
            break
except Exception as error:
    say({"error": repr(error)})
    sys.exit(1)
