#!/usr/bin/env python3
"""`mgplan launch` against real engines: this machine's processes, mpirun, and a Slurm of four nodes.

    launch_test.py MGPLAN local|mpirun|slurm        the tests of an engine
    launch_test.py MGPLAN mpirun|slurm --tries 20   kills one of 16 ranks so often, and prints how each job ended
    launch_test.py MGPLAN mpirun|slurm --starts 5   so often: from the launch of 16 ranks to their first step, beside the engine's own start

Needs nothing but the engine's own packages (slurm_cluster says which). A try counts as good when the launcher names the rank that
was killed, ends with code 4 within 5 s of the kill, and leaves no process behind.

A test that fails prints the ends of everything that was written while it ran (ranks, launcher, engine, and where a process crashed),
and leaves its folder behind.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
MGPLAN = ENGINE = None
RANKS = 16
TRY_LIMIT = 5.0  # seconds, of the issue; the tests themselves ask for nothing that a busy machine could miss
START_LIMIT = 5.0  # the same, beyond the engine's own start
TAIL_LINES = 60  # of each log; the traces of Open MPI's signal handler are shorter
failed = False  # whether anything did: its folder stays


def setUpModule():
    global FOLDER
    FOLDER = tempfile.mkdtemp(prefix="mgplan-launch-")
    # Where the kernel writes cores beside the process (core_pattern is "core"), a crash of a rank leaves one in the folder of its launch.
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    os.environ.update(XDG_STATE_HOME=f"{FOLDER}/state", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    for name in list(os.environ):
        if name.startswith(("SLURM_", "SBATCH_")) or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            del os.environ[name]
    # Nodes see what is mounted before they start. Where nothing may be mounted, it is a folder like any other.
    os.mkdir(f"{FOLDER}/small")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", f"{FOLDER}/small"], capture_output=True)
    if ENGINE == "slurm":
        subprocess.run([HERE / "slurm_cluster", "start", f"{FOLDER}/slurm", "4", "4"], check=True)
        os.environ["SLURM_CONF"] = f"{FOLDER}/slurm/slurm.conf"
        if Path(FOLDER, "slurm/kind").read_text().split()[1] == "0":
            # Nodes without networks of their own: Open MPI takes all ranks for neighbours, and crashes in the memory they do not share.
            os.environ["OMPI_MCA_btl"] = "self,tcp"


def tearDownModule():
    if ENGINE == "slurm":
        subprocess.run([HERE / "slurm_cluster", "stop", f"{FOLDER}/slurm"], check=False)
    if os.path.ismount(f"{FOLDER}/small"):
        subprocess.run(["umount", "--lazy", f"{FOLDER}/small"], check=False)
    if not failed:
        shutil.rmtree(FOLDER, ignore_errors=True)


def files_that_tell():
    """Files below FOLDER, but not the daemons' own states, nor what a job saves."""
    private = {f"{FOLDER}/slurm/{name}" for name in ("state", "spool", "tmp")} | {f"{FOLDER}/small"}
    for folder, inner, names in os.walk(FOLDER):
        inner[:] = sorted(each for each in inner if f"{folder}/{each}" not in private and not each.startswith("step-"))
        yield from (Path(folder, name) for name in sorted(names) if name != "plan.json" and Path(folder, name).is_file())


def is_core(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def trace_of(core):
    if not shutil.which("gdb"):
        return ""
    return subprocess.run(["gdb", "--batch", "-ex", "thread apply all backtrace 40", MGPLAN, core], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="replace", timeout=120).stdout


def tell_of(path):
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 64 * 1024))
        end = file.read()
    if is_core(path):
        print(f"----- {path}: a core", file=sys.stderr)
        print(trace_of(path), file=sys.stderr)
    elif b"\0" not in end:
        lines = end.decode(errors="replace").splitlines()
        left_out = f", its last {TAIL_LINES} lines" if len(lines) > TAIL_LINES else ""
        print(f"----- {path}{left_out}{':' if lines else ' is empty'}", *lines[-TAIL_LINES:], sep="\n", file=sys.stderr)


def tell_what_was_written(begun, title):
    """The folder would be gone with the test, and with it all that could explain a failure that is seen once."""
    global failed
    failed = True
    print(f"\n===== {title}: what was written meanwhile; it stays in {FOLDER}", file=sys.stderr)
    for path in files_that_tell():
        try:
            if path.stat().st_mtime >= begun:
                tell_of(path)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"----- {path}: {error}", file=sys.stderr)  # the job may go on, and take it away
    print(f"===== end of what was written for {title}", file=sys.stderr, flush=True)


class ResultWithLogs(unittest.TextTestResult):
    def startTest(self, test):
        self.begun = time.time()
        super().startTest(test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        tell_what_was_written(self.begun, test.id())

    def addError(self, test, err):
        super().addError(test, err)
        tell_what_was_written(getattr(self, "begun", 0), test.id())


def say(*words, **more):
    return subprocess.run([MGPLAN, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, cwd=FOLDER, **more)


def plan(world, name="plan.json"):
    path = f"{FOLDER}/{name}"
    sizes = ["--tp", "2", "--pp", "2"] if world >= 4 else []
    done = say("--world", world, "--model", "tiny-llama", *sizes, "--save-plan", path)
    assert done.returncode == 0, done.stderr
    return path


def placed():
    return ["--nodes", "4", "--gpus-per-node", "4"] if ENGINE == "slurm" else []


def processes(part):
    """Processes of which a word of the command line holds the part: {pid: words}."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(part in word for word in words):
            found[int(entry.name)] = words
    return found


def rank_process(folder, rank):
    """The process that trains as this rank, not the one that watches it."""
    for process, words in processes(folder).items():
        if words[1:2] != ["run"]:
            continue
        try:
            variables = (Path("/proc") / str(process) / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(f"{name}={rank}".encode() in variables for name in ("PMIX_RANK", "OMPI_COMM_WORLD_RANK")):
            return process
    return None


def trainers(folder):
    """The processes that train, not those that watch them."""
    return sorted(process for process, words in processes(folder).items() if words[1:2] == ["run"])


def wait_for(condition, seconds=90):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(0.02)
    return None


class Job:
    """A launch under way, followed through its files."""

    def __init__(self, *words, **more):
        before = set(self.folders())
        self.own = Path(tempfile.mkdtemp(dir=FOLDER, prefix="launch-"))
        with open(self.own / "out", "w") as out, open(self.own / "err", "w") as err:
            self.process = subprocess.Popen([MGPLAN, "launch", *map(str, words)], stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self.own, **more)
        made = wait_for(lambda: set(self.folders()) - before or self.process.poll() is not None)
        self.folder = made.pop() if isinstance(made, set) else None

    @staticmethod
    def folders():
        jobs = Path(os.environ["XDG_STATE_HOME"]) / "mgplan/jobs"
        return [str(each) for each in jobs.iterdir()] if jobs.is_dir() else []

    def err(self):
        return (self.own / "err").read_text()

    def end(self, seconds=120):
        code = self.process.wait(timeout=seconds)
        return code, (self.own / "out").read_text(), self.err()

    def trains(self):
        return wait_for(lambda: "mgplan: step 2 of" in self.err() or self.process.poll() is not None) and self.process.poll() is None

    def left(self, seconds=5):
        """What still runs for the job a little later."""
        wait_for(lambda: not processes(self.folder), seconds)
        return processes(self.folder)


def kill_a_rank(rank):
    """(seconds until the launcher ended, its code, what it said, what was left)"""
    job = Job(plan(RANKS), "--via", ENGINE, *placed(), "--steps", "100000")
    assert job.trains(), job.err()
    os.kill(rank_process(job.folder, rank), signal.SIGKILL)
    begun = time.monotonic()
    code, _, err = job.end()
    return time.monotonic() - begun, code, err, job.left()


class Launch(unittest.TestCase):
    def one_job(self, name):
        done = say("status", "--format", "json", name)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["jobs"][0]

    def test_trains_and_gathers_one_report(self):
        done = Job(plan(RANKS), "--via", ENGINE, *placed(), "--steps", "2", "--format", "json")
        code, out, err = done.end()
        self.assertEqual(code, 0, err)
        report = json.loads(out)
        self.assertEqual(len(report["ranks"]), RANKS)
        self.assertTrue(report["as_predicted"])
        self.assertEqual(len(report["steps"]), 2)
        self.assertIn("mgplan: step 2 of 2", err)
        job = self.one_job(Path(done.folder).name)
        self.assertEqual((job["state"], job["exit_code"], job["progress"][:11]), ("finished", 0, "step 2 of 2"))
        logs = sorted(each.name for each in Path(job["logs"]).glob("rank-*.log"))
        self.assertEqual(len(logs), 1 if ENGINE == "local" else RANKS)
        self.assertEqual(done.left(), {})

    @unittest.skipIf(len(sys.argv) > 2 and sys.argv[2] == "local", "one process is all ranks")
    def test_names_the_rank_that_was_killed_and_ends_the_others(self):
        _, code, err, left = kill_a_rank(5)
        self.assertEqual(code, 4, err)
        self.assertIn("mgplan: rank 5 on ", err)
        self.assertIn("was killed by signal 9 (Killed); its log: ", err)
        self.assertEqual(left, {})

    def test_begins_anew_from_the_last_checkpoint_and_trains_as_if_nothing_had_been(self):
        words = ("--via", ENGINE, "--steps", "40", "--format", "json", "--max-restarts", "1", "--checkpoint-every", "4")
        whole = Job(plan(4), *words, "--checkpoint", f"{FOLDER}/whole")
        code, out, err = whole.end()
        self.assertEqual(code, 0, err)
        wanted = json.loads(out)["steps"][-1]
        job = Job(plan(4), *words, "--checkpoint", f"{FOLDER}/killed")
        self.assertTrue(wait_for(lambda: list(Path(FOLDER).glob("killed/step-*/manifest.json"))), job.err())
        os.kill(wait_for(lambda: trainers(job.folder))[-1], signal.SIGKILL)
        code, out, err = job.end()
        self.assertEqual(code, 0, err)
        self.assertIn("restart 1 of 1", err)
        report = json.loads(out)
        self.assertGreaterEqual(report["steps_before"], 4)
        self.assertEqual(report["steps_before"] + len(report["steps"]), 40)
        self.assertEqual((report["steps"][-1]["loss"], report["steps"][-1]["grad_norm"]), (wanted["loss"], wanted["grad_norm"]))
        self.assertEqual(job.left(), {})

    def test_ends_the_job_at_ctrl_c(self):
        job = Job(plan(4), "--via", ENGINE, "--steps", "100000")
        self.assertTrue(job.trains(), job.err())
        job.process.send_signal(signal.SIGINT)
        code, _, err = job.end()
        self.assertEqual(code, 4)
        self.assertIn("cancelled: it was asked to stop", err)
        self.assertEqual(self.one_job(Path(job.folder).name)["state"], "cancelled")
        self.assertEqual(job.left(), {})

    def test_detaches_and_tells_of_the_job_later(self):
        done = say("launch", plan(4), "--via", ENGINE, "--steps", "3", "--detach")
        self.assertEqual(done.returncode, 0, done.stderr)
        name = done.stdout.strip()
        job = wait_for(lambda: (now := self.one_job(name))["exit_code"] is not None and now)
        self.assertTrue(job)
        self.assertEqual((job["state"], job["exit_code"]), ("finished", 0), job)

    @unittest.skipIf(len(sys.argv) > 2 and sys.argv[2] == "slurm", "Slurm goes on without the launcher")
    def test_says_that_a_job_is_lost_when_its_launcher_was_killed(self):
        job = Job(plan(4), "--via", ENGINE, "--steps", "100000")
        self.assertTrue(job.trains(), job.err())
        job.process.kill()
        job.end()
        self.assertEqual(job.left(10), {})  # ranks do not outlive it
        now = self.one_job(Path(job.folder).name)
        self.assertIn(now["state"], ("lost", "failed"), now)

    @unittest.skipUnless(len(sys.argv) > 2 and sys.argv[2] == "slurm", "Slurm's")
    def test_goes_on_in_slurm_when_its_launcher_was_killed_and_says_so(self):
        job = Job(plan(4), "--via", ENGINE, "--steps", "100000")
        self.assertTrue(job.trains(), job.err())
        job.process.kill()
        job.end()
        now = self.one_job(Path(job.folder).name)
        self.assertEqual(now["state"], "running", now)
        self.assertIn("launcher is gone", now["reason"])
        subprocess.run(["scancel", now["engine_job"]], check=True)
        self.assertTrue(wait_for(lambda: self.one_job(now["id"])["state"] == "cancelled"))
        self.assertEqual(job.left(10), {})

    @unittest.skipUnless(len(sys.argv) > 2 and sys.argv[2] == "slurm", "Slurm's")
    def test_says_that_somebody_cancelled_the_job(self):
        job = Job(plan(4), "--via", ENGINE, "--steps", "100000")
        self.assertTrue(job.trains(), job.err())
        subprocess.run(["scancel", self.one_job(Path(job.folder).name)["engine_job"]], check=True)
        code, _, err = job.end()
        self.assertEqual(code, 4)
        self.assertIn("cancelled in Slurm (scancel)", err)
        self.assertEqual(job.left(10), {})

    @unittest.skipUnless(len(sys.argv) > 2 and sys.argv[2] == "slurm", "Slurm's")
    def test_names_the_node_that_was_lost_and_ends_the_ranks(self):
        job = Job(plan(RANKS), "--via", ENGINE, *placed(), "--steps", "100000")
        self.assertTrue(job.trains(), job.err())
        cluster = [HERE / "slurm_cluster"]
        lost = subprocess.run([*cluster, "lose", f"{FOLDER}/slurm", "4"], check=True, capture_output=True, text=True).stdout.strip()
        try:
            code, _, err = job.end()
        finally:
            subprocess.run([*cluster, "return", f"{FOLDER}/slurm", "4"], check=True)
        self.assertEqual(code, 4, err)
        self.assertIn("Slurm lost one of the job's nodes", err)
        self.assertIn(lost, err)
        self.assertEqual(job.left(30), {})

    def test_ends_with_the_file_and_the_reason_where_a_checkpoint_has_no_room(self):
        small, more, reason = Path(FOLDER, "small"), {}, "No space left on device"
        if not os.path.ismount(small):
            if ENGINE != "local":
                self.skipTest("no file system of a chosen size can be mounted here")
            # A limit that ends a file is the next best thing; under it no MPI starts.
            reason, limit = "File too large", (200_000, 200_000)
            more = {"restore_signals": False, "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit)}
        job = Job(plan(4), "--via", ENGINE, "--steps", "100000", "--checkpoint", small / "saved", "--checkpoint-every", "1", **more)
        code, _, err = job.end()
        self.assertEqual(code, 4, err)
        self.assertIn(f"{small}/saved", err)
        self.assertIn(reason, err)
        if ENGINE != "local":
            self.assertRegex(err, r"mgplan: rank \d+ on \S+ ended with exit code 4: checkpoint file ")  # though the engine kills all at once
        self.assertEqual(list(small.glob("saved/step-*/manifest.json")), [])
        self.assertEqual(job.left(), {})

    @unittest.skipUnless(len(sys.argv) > 2 and sys.argv[2] == "slurm", "Slurm's")
    def test_passes_on_what_slurm_refuses(self):
        done = say("launch", plan(4), "--via", "slurm", "--partition", "nowhere")
        self.assertEqual(done.returncode, 4)
        self.assertIn("sbatch does not take the job: ", done.stderr)
        self.assertIn("invalid partition specified", done.stderr)

    @unittest.skipUnless(len(sys.argv) > 2 and sys.argv[2] == "slurm", "needs several nodes")
    def test_refuses_ranks_that_are_dealt_out_to_nodes_in_turn(self):
        logs = tempfile.mkdtemp(dir=FOLDER)
        done = subprocess.run(["srun", "-K1", "-N2", "-n4", "--distribution=cyclic", MGPLAN, "rank", "--world", "4", "--ranks-per-node", "2",
                               "--logs", logs, "--", "true"], capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("let ranks fill nodes one after the other", done.stderr)
        self.assertIn("local rank", json.loads(Path(logs, "first_failure.json").read_text())["reason"])

    @unittest.skipUnless(len(sys.argv) > 2 and sys.argv[2] == "mpirun", "needs MPI alone")
    def test_refuses_more_ranks_on_a_machine_than_planned(self):
        done = subprocess.run(["mpirun", "--oversubscribe", "-n", "4", MGPLAN, "run", plan(4), "--ranks-per-node", "2"], capture_output=True,
                              text=True, timeout=120)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("the plan has 2 ranks on a machine, and ", done.stderr)

    @unittest.skipUnless(len(sys.argv) > 2 and sys.argv[2] == "local", "needs no engine")
    def test_refuses_sixteen_jobs_of_one_rank(self):
        logs = tempfile.mkdtemp(dir=FOLDER)
        words = ("rank", "--world", 16, "--ranks-per-node", 4, "--logs", logs, "--", "true")
        alone = say(*words)
        self.assertEqual(alone.returncode, 2)
        self.assertIn("the engine started jobs of one rank each", alone.stderr)
        one = say(*words, env={**os.environ, "PMI_RANK": "0", "PMI_SIZE": "1"})
        self.assertEqual(one.returncode, 2)
        self.assertIn("the plan has 16 ranks, and PMI started 1 (so there are perhaps many jobs of one rank each)", one.stderr)


# Stands for pretrain_gpt.py: ranks of a job that fails until it is told from where to go on.
SCRIPT = """
import os, sys, time
rank = int(os.environ["RANK"])
print("rank", rank, "of", os.environ["WORLD_SIZE"], "local", os.environ["LOCAL_RANK"], "at", os.environ["MASTER_ADDR"],
      os.environ["MASTER_PORT"], flush=True)
assert "--tensor-model-parallel-size" in sys.argv and sys.argv[sys.argv.index("--data-path") + 1] == "it's $HOME"
if "--load" not in sys.argv:
    if rank == 1:
        sys.exit(7)
    time.sleep(60)
"""


@unittest.skipUnless(len(sys.argv) > 2 and sys.argv[2] == "local", "needs no engine")
class Megatron(unittest.TestCase):
    def launch(self, *words):
        script = Path(FOLDER, "pretrain 'gpt'.py")
        script.write_text(SCRIPT)
        return Job(plan(4), "--via", "local", "--gpus-per-node", "4", "--job", "megatron", "--script", script, *words, "--", "--data-path", "it's $HOME")

    def test_begins_anew_from_the_checkpoint_and_tells_the_ranks_who_they_are(self):
        job = self.launch("--checkpoint", f"{FOLDER}/a checkpoint", "--max-restarts", "2")
        code, _, err = job.end()
        self.assertEqual(code, 0, err)
        self.assertIn("restart 1 of 2: rank 1 on ", err)
        self.assertIn("ended with exit code 7", err)
        self.assertIn("rank 0 of 4 local 0 at 127.0.0.1", err)
        logs = Path(job.folder, "attempt-2")
        self.assertEqual(sorted(each.name for each in logs.glob("rank-*")), [f"rank-{rank:05}.log" for rank in range(4)])
        self.assertIn("rank 3 of 4 local 3 at", (logs / "rank-00003.log").read_text())

    def test_gives_up_when_no_restart_is_left(self):
        job = self.launch()
        code, _, err = job.end()
        self.assertEqual(code, 4, err)
        self.assertIn("rank 1 on ", err)
        self.assertNotIn("restart", err)
        self.assertEqual(job.left(), {})


def starts(count):
    """The engine's own start is what it takes for 16 processes that do nothing."""
    setUpModule()
    alone = {"mpirun": ["mpirun", "--oversubscribe", "-n", str(RANKS), "true"],
             "slurm": ["srun", "--mpi=pmix", "-N4", "--ntasks-per-node=4", "true"]}[ENGINE]
    good = 0
    try:
        path = plan(RANKS)
        for number in range(1, count + 1):
            begun = time.monotonic()
            subprocess.run(alone, stdin=subprocess.DEVNULL, check=True)
            engine = time.monotonic() - begun
            begun = time.monotonic()
            job = Job(path, "--via", ENGINE, *placed(), "--steps", "100000")
            assert wait_for(lambda: "mgplan: step 1 of" in job.err()), job.err()
            launch = time.monotonic() - begun
            job.process.send_signal(signal.SIGINT)
            job.end()
            fine = launch - engine <= START_LIMIT
            good += fine
            print(f"start {number}: first step after {launch:.2f} s, the engine alone {engine:.2f} s, "
                  f"beyond it {launch - engine:.2f} s: {'good' if fine else 'BAD'}", flush=True)
    finally:
        tearDownModule()
    print(f"{good} of {count} starts under {ENGINE} good")
    return 0 if good == count else 1


def tries(count):
    setUpModule()
    good = 0
    try:
        for number in range(1, count + 1):
            rank = (7 * number) % RANKS
            begun = time.time()
            seconds, code, err, left = kill_a_rank(rank)
            named = f"mgplan: rank {rank} on " in err
            fine = named and code == 4 and not left and seconds <= TRY_LIMIT
            good += fine
            print(f"try {number:2}: rank {rank:2} killed; {'named' if named else 'NOT named'}, code {code}, after {seconds:.2f} s, "
                  f"{len(left)} processes left: {'good' if fine else 'BAD'}", flush=True)
            if not fine:
                tell_what_was_written(begun, f"try {number}")
    finally:
        tearDownModule()
    print(f"{good} of {count} tries under {ENGINE} good")
    return 0 if good == count else 1


if __name__ == "__main__":
    MGPLAN, ENGINE = os.path.abspath(sys.argv[1]), sys.argv[2]
    if sys.argv[3:4] == ["--tries"]:
        sys.exit(tries(int(sys.argv[4])))
    if sys.argv[3:4] == ["--starts"]:
        sys.exit(starts(int(sys.argv[4])))
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], testRunner=unittest.TextTestRunner(verbosity=2, resultclass=ResultWithLogs))
