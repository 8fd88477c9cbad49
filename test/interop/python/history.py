"""What a process did, appended to a file as it happens: before it tries something, and when it knows the outcome."""

import json
import os
import time


class History:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def invoke(self, op: str, **about: object) -> None:
        self._write("invoke", op, about)

    def ok(self, op: str, **about: object) -> None:
        self._write("ok", op, about)

    def refused(self, op: str, **about: object) -> None:
        """Certainly not done."""
        self._write("refused", op, about)

    def unknown(self, op: str, **about: object) -> None:
        """Perhaps done."""
        self._write("unknown", op, about)

    def _write(self, type: str, op: str, about: dict) -> None:
        # The monotonic clock of Linux is the same in all processes.
        record = {"type": type, "op": op, "us": time.monotonic_ns() // 1000, "ms": int(time.time() * 1000), **about}
        os.write(self._file, (json.dumps(record) + "\n").encode())
