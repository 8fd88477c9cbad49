"""Another process on the same file, in Python: does what it is told by lines of JSON, and answers in lines of JSON.

The module that the input names offers the commands: its `open(location, options)` returns them by their names.
Commands run at the same time, each in a thread, so one that waits holds up no other. Ends with its standard input.
"""

import importlib
import json
import os
import sys
import threading

output = threading.Lock()


def say(message):
    # Escaped, so that no text of a payload can break the line or the encoding.
    text = json.dumps(message, allow_nan=False)
    with output:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def answer(commands, call, method, args):
    try:
        message = {"result": commands[method](*args)}
    except Exception as error:
        name = type(error).__name__
        message = {"error": {"name": name, "code": name, "message": str(error)}}
    say({"say": f"answer {call}", **message})


def main():
    told = json.loads(sys.argv[1])
    module = importlib.import_module(told["commands"])
    commands = module.open(told["location"], told["options"])
    say({"say": "open", "pid": os.getpid()})
    threads = []
    for line in sys.stdin:
        message = json.loads(line)
        args = (commands, message["call"], message["method"], message["args"])
        threads.append(threading.Thread(target=answer, args=args, daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()


main()
