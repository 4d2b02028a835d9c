#!/usr/bin/env python3
"""Kills `mgplan run --checkpoint` at moments of chance and looks at what is left.

    kill_test.py MGPLAN [--kills 200] [--seed S]

A training of two ranks saves itself behind every step. It is started, killed (SIGKILL) after a time of chance or while the
folder of a checkpoint is being filled, and started again with --resume, over and over. After each kill:
  - every folder with a manifest is read back by the next start (its files' sizes and checksums are compared);
  - the next start goes on from the newest of them, or says that there is none;
  - no step that was told to be saved is lost.
At the end the training runs to its last step, and its last losses must be those of a run that nobody killed, to the bit.
"""
import argparse
import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time


def complete(folder: pathlib.Path) -> list[int]:
    return sorted(int(path.parent.name[5:]) for path in folder.glob("step-*/manifest.json"))


def being_saved(folder: pathlib.Path, since: float) -> bool:
    """Whether there is a checkpoint without a manifest with a file that was written since then (time.time())."""
    for path in folder.glob("step-*"):
        try:
            if not (path / "manifest.json").exists() and any(file.stat().st_mtime > since for file in path.iterdir()):
                return True
        except FileNotFoundError:
            pass  # just removed
    return False


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("mgplan")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    chance = random.Random(options.seed)
    print(f"seed {options.seed}")
    work = pathlib.Path(tempfile.mkdtemp(prefix="mgplan_kills_"))
    try:
        return kills(options, chance, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def kills(options: argparse.Namespace, chance: random.Random, work: pathlib.Path) -> int:
    plan, folder = work / "plan.json", work / "checkpoints"
    subprocess.run([options.mgplan, "--model", "tiny-llama", "--world", "2", "--tp", "1", "--pp", "1", "--global-batch", "2", "--seq", "8",
                    "--precision", "fp32", "--save-plan", plan], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def command(steps: int, *more: str) -> list[str]:
        return [options.mgplan, "run", str(plan), "--steps", str(steps), "--ranks-in-process", "--format", "json", *more]

    saving = ["--checkpoint", str(folder), "--checkpoint-every", "1", "--checkpoint-keep", "3", "--resume"]
    # How long a start takes here, so that kills fall before, into and between saves.
    begin = time.monotonic()
    subprocess.run(command(2, "--checkpoint", str(work / "trial"), "--checkpoint-every", "1"), check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    usual = time.monotonic() - begin
    in_save = 0
    for number in range(options.kills):
        before = complete(folder)
        with open(work / "said", "w+") as said:
            process = subprocess.Popen(command(1_000_000, *saving), stdout=subprocess.DEVNULL, stderr=said)
            started = time.time()
            until = time.monotonic() + chance.uniform(0, 2 * usual)
            aims_at_save = chance.random() < 0.5
            while time.monotonic() < until + (10 * usual if aims_at_save else 0) and process.poll() is None:
                if aims_at_save and time.monotonic() > until and being_saved(folder, started):
                    time.sleep(chance.uniform(0, 0.003))
                    break
                if not aims_at_save:
                    time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
            code = process.wait()
            said.seek(0)
            text = said.read()
        if code != -signal.SIGKILL:
            print(f"kill {number}: the run ended by itself with {code}:\n{text}")
            return 1
        begun = re.search(r"continues after step (\d+)", text)
        if begun and (not before or int(begun[1]) != before[-1]):
            print(f"kill {number}: went on from step {begun[1]}, complete were {before}")
            return 1
        if before and "begins at the first step" in text:
            print(f"kill {number}: began anew with {before}")
            return 1
        after = complete(folder)
        in_save += being_saved(folder, started)
        told = [int(step) for step in re.findall(r"step (\d+) saved", text)]
        last = max(told + before, default=0)
        if last and (not after or after[-1] < last):
            print(f"kill {number}: step {last} was saved, and {after} are there")
            return 1
    done = complete(folder)
    steps = (done[-1] if done else 0) + 3
    rest = subprocess.run(command(steps, *saving), check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    whole = subprocess.run(command(steps), check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    losses = [[step["loss"] for step in json.loads(run.stdout)["steps"][-3:]] for run in (rest, whole)]
    if losses[0] != losses[1]:
        print(f"after all kills the losses are {losses[0]}, without them {losses[1]}")
        return 1
    print(f"{options.kills} kills, {in_save} of them inside a save; step {steps - 3} was reached, and the losses of the three behind it are "
          "those of a run that nobody killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
