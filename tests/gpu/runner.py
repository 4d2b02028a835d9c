"""Runs parts of tests/gpu/run one after the other, and keeps what became of them."""

import dataclasses
import os
import sys
import tempfile
import time

import bundle as bundles
import outcomes
import programs
import said
from part import Verdict, moment


class Runner:
    """Runs parts one after the other, and keeps what became of them."""

    def __init__(self, folder, build, results, seconds):
        self.folder, self.build, self.results, self.budget = folder, build, results, seconds
        self.kept = outcomes.kept_folder(results["gpu"])
        self.started = time.monotonic()
        self.tells_clocks = True
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
        return programs.run(words, seconds, {**self.environment, **(environment or {})})

    def processes(self, jobs, seconds):
        """The same of several at a time, [(words, environment)]; in their order."""
        return programs.run_together([(words, seconds, {**self.environment, **environment}) for words, environment in jobs])

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
        except programs.Stopped as stopped:
            said.append(self.folder / said.OUTPUT, said.section(name, moment(), stopped.output))
            self.conclude(name, part, "left out", time.monotonic() - begin, f"the command was stopped from outside ({stopped})")
            raise
        except Exception as problem:  # noqa: BLE001 - a broken part must not take the others with it
            verdict = Verdict(f"{type(problem).__name__}: {problem}")
        if not verdict.why and self.unfit:
            verdict.why = f"no pass on this machine: {self.unfit}"
        said.append(self.folder / said.OUTPUT, said.section(name, moment(), verdict.output))
        status = "passed" if not verdict.why else "failed"
        self.conclude(name, part, status, time.monotonic() - begin, verdict.why or verdict.summary, verdict.data)
        if verdict.why and verdict.output:
            self.log.write("".join(f"    {line}\n" for line in verdict.output.splitlines()[-25:]))
            self.log.flush()

    def conclude(self, name, part, status, seconds, text, data=None):
        kept = outcomes.measured_before(self.results["parts"].get(name)) if status == "left out" else {}
        self.note(f"{name}: {status if status == 'passed' else status.upper()} in {seconds:.0f} s{': ' + text if text else ''}")
        clocks = self.clocks(part) if status != "left out" else ""
        self.results["parts"][name] = {"status": status, "seconds": round(seconds, 1), "why": text, "at": moment(), "clocks": clocks, "data": data,
                                       "again": part.again, "sources": self.results["bundle"]["sources"],
                                       "commit": self.results["bundle"]["commit"], **kept}
        self.keep()

    def clocks(self, part):
        """What the card does right behind a part whose seconds count; empty where it does not tell, which is not asked again."""
        if not part.timed or not self.tells_clocks:
            return ""
        try:
            code, told = programs.run(["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu",
                                       "--format=csv,noheader"], 5)
        except OSError:
            code, told = None, ""
        self.tells_clocks = code == 0 and bool(told.strip())
        return told.strip().splitlines()[0] if self.tells_clocks else ""
