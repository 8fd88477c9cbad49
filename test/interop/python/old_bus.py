"""Dispatches an event with the bus of any 1.x version, or handles those that are there. Says what it had.

The older versions are installed without pydantic, which comes from the directory that the input names.
"""

import asyncio
import importlib.metadata
import json
import sys

given = json.loads(sys.argv[1])
sys.path.append(given["pydantic"])

from localqueue.bus import BaseEvent, BusTopology, EventBus  # noqa: E402


class Task(BaseEvent):
    event_name = "task"
    n: int


bus = EventBus(given["location"], "default", topology=BusTopology({"work": [Task]}))


def say(event: BaseEvent) -> None:
    told = {"version": importlib.metadata.version("localqueue"), "event_id": str(event.event_id), "n": event.n}
    if getattr(event, "correlation_id", None) is not None:
        told["correlation_id"] = str(event.correlation_id)
        told["causation_id"] = str(event.causation_id)
    print(json.dumps({"say": "event", **told}), flush=True)


@bus.on(Task, subscription="work")
def handle(event: Task) -> None:
    say(event)


if "dispatch" in given:
    task = Task(n=given["dispatch"])
    bus.dispatch(task)
    say(task)
else:
    asyncio.run(bus.run(idle_timeout=0.2))
bus.close()
