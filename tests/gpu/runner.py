"""Runs parts of tests/gpu/run one after the other, and keeps what became of them."""

import concurrent.futures
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time

import bundle as bundles
import outcomes
import said
from part import Verdict, moment

MOST_OUTPUT = 2_000_000  # bytes kept of one part


class Runner:
    """Runs parts one after the other, and keeps what became of them."""

    def __init__(self, folder, build, results, seconds):
        self.folder, self.build, self.results, self.budget = folder, build, results, seconds
        self.kept = outcomes.kept_folder(results["gpu"])
        self.started = time.monotonic()
        self.unfit = ""  # why nothing passes here, whatever it finds
        said.mend(folder / said.OUTPUT)
        self.log = open(folder / "log.txt", "a", encoding="utf-8")
        self.environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(bundles.library_folders()), "PYTHONUNBUFFERED": "1"}
        self.environment["PATH"] += ":/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer"
        self.scratch = tempfile.TemporaryDirectory(prefix="mgplan-gpu-")

    def left(self, share=1.0):
        """Seconds until this share of the command's has passed."""
        return share * self.budget - (time.monotonic() - self.started)

    def note(self, text):
        for stream in (sys.stdout, self.log):
            print(text, file=stream, flush=True)

    def process(self, words, seconds, environment=None):
        """Exit code (None: stopped at its limit) and output of a process group."""
        environment = {**self.environment, **(environment or {})}
        with tempfile.TemporaryFile() as file:
            child = subprocess.Popen([str(word) for word in words], stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                     env=environment, start_new_session=True)
            try:
                code = child.wait(timeout=max(1.0, seconds))
            except subprocess.TimeoutExpired:
                code = None
            finally:
                try:
                    os.killpg(child.pid, signal.SIGKILL)  # whatever it left running
                except ProcessLookupError:
                    pass
                child.wait()
            file.seek(0)
            return code, file.read(MOST_OUTPUT).decode("utf-8", "replace")

    def processes(self, jobs, seconds):
        """The same of several at a time, [(words, environment)]; in their order."""
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
            return [each.result() for each in [pool.submit(self.process, words, seconds, environment) for words, environment in jobs]]

    def keep(self):
        """In the command's folder, and where the next command on this machine looks for them."""
        for folder in {self.folder, self.kept}:
            folder.mkdir(parents=True, exist_ok=True)
            outcomes.save(self.results, folder / outcomes.RESULTS)

    def passed(self, name):
        """Earlier, of these sources."""
        before = self.results["parts"].get(name, {})
        return before.get("status") == "passed" and before.get("sources") == self.results["bundle"]["sources"]

    def run_all(self, parts):
        """Those whose share of the seconds is over come behind the others, and behind these what judges them."""
        late, judges = [], []
        for name, part in parts.items():
            if part.again:
                judges.append((name, part))
            elif self.passed(name):
                self.note(f"{name}: passed earlier")
            elif self.left(part.until) < part.least <= self.left():
                late.append((name, dataclasses.replace(part, until=1.0)))
            else:
                self.run(name, part)
        for name, part in late + judges:
            self.run(name, part)

    def run(self, name, part):
        seconds = min(part.seconds, self.left(part.until))
        if seconds < part.least and not part.again:
            before = self.results["parts"].get(name, {})
            if before.get("status") == "failed" and before.get("sources") == self.results["bundle"]["sources"]:
                self.note(f"{name}: failed before, and too little time is left to try it again")
                return
            self.conclude(name, part, "left out", 0, f"{max(0, int(seconds))} s were left of {self.budget}, and it is not begun with less than "
                          f"{part.least}; call again")
            return
        begin = time.monotonic()
        try:
            verdict = part.work(self, seconds)
        except Exception as problem:  # noqa: BLE001 - a broken part must not take the others with it
            verdict = Verdict(f"{type(problem).__name__}: {problem}")
        if not verdict.why and self.unfit:
            verdict.why = f"no pass on this machine: {self.unfit}"
        said.append(self.folder / said.OUTPUT, said.section(name, moment(), verdict.output))
        status = "passed" if not verdict.why else "failed"
        self.conclude(name, part, status, time.monotonic() - begin, verdict.why or verdict.summary, verdict.data)
        if verdict.why and verdict.output:
            self.log.write("".join(f"    {line}\n" for line in verdict.output.splitlines()[-25:]))

    def conclude(self, name, part, status, seconds, text, data=None):
        kept = outcomes.measured_before(self.results["parts"].get(name)) if status == "left out" else {}
        self.note(f"{name}: {status if status == 'passed' else status.upper()} in {seconds:.0f} s{': ' + text if text else ''}")
        self.results["parts"][name] = {"status": status, "seconds": round(seconds, 1), "why": text, "at": moment(), "clocks": clocks(),
                                       "data": data, "again": part.again, "sources": self.results["bundle"]["sources"],
                                       "commit": self.results["bundle"]["commit"], **kept}
        self.keep()


def clocks():
    """What the card does right behind a part; empty where it does not tell."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=20)
        return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""
