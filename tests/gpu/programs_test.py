#!/usr/bin/env python3
"""How tests/gpu/run starts and ends programs: programs_test.py MGPLAN [GPU_ALL]"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

import faked
import programs
from fake_card import executable
from part import Part, Verdict

SLEEP = [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"]


class Programs(faked.Scripts):
    def test_what_cannot_be_ended_holds_nothing_up(self):
        code, output = programs.run(SLEEP, 1)
        self.assertEqual((code, output), (None, "begun\n"))
        began = time.monotonic()
        with mock.patch.object(subprocess.Popen, "wait", side_effect=subprocess.TimeoutExpired("it", 1)):
            for words in (SLEEP, ["true"]):
                code, output = programs.run(words, 1)
                self.assertEqual(code, None)
                self.assertTrue(output.endswith("it could not be ended within 20 s: it is stuck in the driver\n"), output)
        self.assertLess(time.monotonic() - began, 10)

    def test_a_long_output_keeps_its_beginning_and_its_end(self):
        with mock.patch.object(programs, "MOST_OUTPUT", 100):
            code, output = programs.run([sys.executable, "-c", "print('first'); print('x' * 1000); print('last')"], 20)
        self.assertEqual(code, 0)
        self.assertRegex(output, "^first\nx+\n... 912 bytes are left out here ...\nx+\nlast\n$")
        self.assertLess(len(output), 160)
        self.assertEqual(programs.run(["echo", "short"], 20), (0, "short\n"))

    def test_a_program_that_hangs_has_said_what_it_printed(self):
        if not faked.REAL:
            self.skipTest("gpu_all was not built")
        self.assertEqual(programs.run([faked.REAL, "hang"], 6), (None, "gpu_all hang: waits to be stopped\n"))

    def test_clocks_are_read_behind_what_measures_and_not_again_where_they_are_not_told(self):
        calls = self.folder / "smi.calls"
        executable(self.folder / "counted" / "nvidia-smi", f"#!/bin/sh\necho call >>'{calls}'\n[ -z \"$FAKE_SILENT\" ] && echo '1980 MHz, 50'\n")

        def asked(**fakes):
            calls.write_text("", encoding="utf-8")
            runner = self.runner(-1 if "late" in fakes else 100)
            with mock.patch.dict(os.environ, {"PATH": f"{self.folder / 'counted'}:{os.environ['PATH']}", **fakes}):
                for name, timed in (("tests", False), ("products", True), ("layers", True)):
                    runner.run(name, Part(10, lambda runner, seconds: Verdict(), timed=timed))
            return len(calls.read_text(encoding="utf-8").split()), [part["clocks"] for part in runner.results["parts"].values()]
        self.assertEqual(asked(), (2, ["", "1980 MHz, 50", "1980 MHz, 50"]))
        self.assertEqual(asked(FAKE_SILENT="yes"), (1, ["", "", ""]))
        self.assertEqual(asked(late="yes"), (0, ["", "", ""]), "nothing is asked behind what is left out")

    def test_of_several_that_are_stopped_each_is_heard(self):
        before = signal.signal(signal.SIGTERM, programs.stop)
        try:
            timer = threading.Timer(2, os.kill, (os.getpid(), signal.SIGTERM))
            timer.start()
            with self.assertRaises(programs.Stopped) as stopped:
                programs.run_together([(SLEEP, 60, None), (SLEEP, 60, None)])
        finally:
            signal.signal(signal.SIGTERM, before)
        self.assertEqual(stopped.exception.output, "begun\nbegun\n")

    def test_a_command_that_is_stopped_keeps_what_the_part_had_said(self):
        folder = self.folder / "stopped"
        environment = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "OUT": str(folder), "FAKE": str(self.folder),
                       "FAKE_TESTS": "hang", "REAL_MGPLAN": faked.MGPLAN}
        with subprocess.Popen([self.tree / "tests" / "gpu" / "run", "correctness", "--parts", "fp32,bf16"], env=environment, text=True,
                              stdout=subprocess.PIPE) as command:
            until = time.monotonic() + 60
            while not (self.folder / "hangs").exists() and time.monotonic() < until:
                time.sleep(0.1)
            command.send_signal(signal.SIGTERM)
            text = command.communicate(timeout=60)[0]
        self.assertEqual(command.returncode, 1)
        self.assertIn("correctness: FAILED: stopped from outside (signal 15) in ", text)
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        self.assertEqual([(name, part["status"]) for name, part in results["parts"].items()], [("fp32", "left out")])
        self.take("stopped")
        self.assertIn("[ RUN      ] One.Test", self.kept_output())


if __name__ == "__main__":
    faked.main()
