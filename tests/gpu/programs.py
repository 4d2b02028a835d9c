"""Programs that are stopped when they take too long, and what they said."""

import concurrent.futures
import os
import signal
import subprocess
import tempfile

MOST_OUTPUT = 2_000_000  # bytes kept of one program: half of them from its beginning, half from its end
ENDS_WITHIN = 20  # seconds in which a program that is killed is gone, unless it is stuck in the driver

running = set()  # process groups


class Stopped(BaseException):
    """The command itself is asked to end; `output` is what the program that ran had said."""
    output = ""


def stop(number, frame):
    """For signal.signal: nothing that was started goes on."""
    for group in list(running):
        kill(group)
    raise Stopped(f"signal {number}")


def kill(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def head_and_tail(file, most):
    """A long output's summary stands at its end, and what went wrong first at its beginning."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= most:
        return file.read()
    head = file.read(most // 2)
    file.seek(size - most // 2)
    return head + f"\n... {size - 2 * (most // 2)} bytes are left out here ...\n".encode() + file.read()


def gone(child):
    """Whether it and whatever it left running could be ended."""
    kill(child.pid)
    try:
        child.wait(timeout=ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        return False
    return True


def run(words, seconds, environment=None):
    """Exit code (None: stopped at its limit) and output of a process group."""
    with tempfile.TemporaryFile() as file:
        child = subprocess.Popen([str(word) for word in words], stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                 env=environment, start_new_session=True)
        running.add(child.pid)
        code, stopped = None, None
        try:
            code = child.wait(timeout=max(1.0, seconds))
        except subprocess.TimeoutExpired:
            pass
        except Stopped as problem:
            stopped = problem
        ended = gone(child)
        running.discard(child.pid)
        output = head_and_tail(file, MOST_OUTPUT).decode("utf-8", "replace")
        if stopped:
            stopped.output = output
            raise stopped
        return (code, output) if ended else (None, f"{output}\nit could not be ended within {ENDS_WITHIN} s: it is stuck in the driver\n")


def run_together(jobs):
    """The same of several at a time, [(words, seconds, environment)]; in their order."""
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        started = [pool.submit(run, *job) for job in jobs]
        try:
            return [each.result() for each in started]
        except Stopped as stopped:  # only the main thread hears of it: each program is gone, and its thread has what it said
            stopped.output = "".join(each.result()[1] for each in started)
            raise
