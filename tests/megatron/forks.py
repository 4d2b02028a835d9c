"""Forks a process for each piece of work, so that what they need is imported once."""

import os
import pickle
import selectors
import signal
import time


def write_all(pipe, data):
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view):]


def start(function, argument):
    """Forks a child that computes function(argument); returns (process id, pipe with its pickled result)."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read)
            write_all(write, pickle.dumps(function(argument)))
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    return child, read


def map_forked(function, arguments, workers, seconds, on_failure):
    """Yields (index, function(argument)) as children finish; on_failure(text) is the result of a child that died or took too long."""
    waiting = list(enumerate(arguments))[::-1]
    running, selector = {}, selectors.DefaultSelector()
    while waiting or running:
        while waiting and len(running) < workers:
            index, argument = waiting.pop()
            child, pipe = start(function, argument)
            running[pipe] = [index, child, time.monotonic() + seconds, b""]
            selector.register(pipe, selectors.EVENT_READ)
        ready = {key.fd for key, _ in selector.select(timeout=1)}
        for pipe, job in list(running.items()):
            index, child, deadline, _ = job
            part = os.read(pipe, 1 << 20) if pipe in ready else None
            if part:
                job[3] += part
                continue
            if part is None and time.monotonic() < deadline:
                continue
            if part is None:
                os.kill(child, signal.SIGKILL)
            selector.unregister(pipe)
            os.close(pipe)
            _, status = os.waitpid(child, 0)
            del running[pipe]
            if part is None:
                yield index, on_failure(f"no answer within {seconds} s")
            elif status:
                yield index, on_failure(f"the process ended with status {status}")
            else:
                yield index, pickle.loads(job[3])
