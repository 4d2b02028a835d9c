#!/usr/bin/env python3
"""Without OpenBLAS mgplan links, plans, and says what running needs: without_openblas_test.py BINARY"""
import subprocess
import sys
import tempfile


def say(*words):
    return subprocess.run([sys.argv[1], *words], capture_output=True, text=True, timeout=120, check=False)


with tempfile.TemporaryDirectory() as folder:
    plan = f"{folder}/plan.json"
    done = say("--world", "4", "--model", "tiny-llama", "--save-plan", plan)
    assert done.returncode == 0 and "tok/s" in done.stdout, done
    for words in (["run", plan], ["calibrate", "--output", f"{folder}/cluster.json"], ["verify", plan]):
        done = say(*words)
        assert done.returncode in (2, 4) and "OpenBLAS" in done.stderr and done.stdout == "", (words, done)
