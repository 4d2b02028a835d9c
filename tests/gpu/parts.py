"""The parts of tests/gpu/run's commands: what each starts, and when it has passed."""

import dataclasses
import functools
import json
import re
import secrets
import shutil
import socket
import sys
from pathlib import Path
from time import monotonic
from typing import Any, Callable


HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bundle as bundles  # noqa: E402

SANITIZER_FOUND_SOMETHING = 86
LEAST_OF_TORCH = 1.1  # times the tokens per second of the best PyTorch
TOLERANCE = 10  # percent of the measured time
ADA = 89  # compute capability from which there is fp8
BAD_INPUT = 2  # exit code of mgplan for input that it refuses
MISSED = 5  # exit code of `mgplan verify` for a prediction beyond its tolerance


@dataclasses.dataclass
class Verdict:
    why: str = ""  # why it has not passed; empty where it has
    summary: str = ""
    data: Any = None  # kept in results.json
    output: str = ""


@dataclasses.dataclass
class Part:
    seconds: int  # its limit
    work: Callable
    tests: str = ""  # GoogleTest's filter, where it is tests of gpu_all
    capability: int = 0  # least compute capability, 89 for 8.9: on older cards it is no part of the command
    least: int | None = None  # with fewer seconds left it is not begun: stopped halfway, it would seem to have failed
    until: float = 1.0  # share of the command's seconds by which it ends, so that parts behind it get theirs
    goes_on: bool = False  # keeps what it did and goes on with it in the next call
    again: bool = False  # judges what other parts measured: in every call anew, and the newest verdict counts

    def __post_init__(self):
        if self.least is None:
            self.least = self.seconds // 3


def ended(code, output, seconds):
    """Why a process that should exit with 0 did not; empty where it did."""
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "it said nothing")
    if code is None:
        return f"not done within {seconds:.0f} s; last: {last[:300]}"
    if code < 0:
        return f"ended by signal {-code}; last: {last[:300]}"
    if code == 77:
        return f"no GPU could be used although nvidia-smi lists one: {last[:600]}"
    return f"exit code {code}: {last[:600]}" if code != 0 else ""


def read_json(path):
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


# ---- correctness

SUMMARY = re.compile(r"^gpu_all test: (\d+) passed, (\d+) skipped, (\d+) failed$", re.MULTILINE)


def judge_tests(code, output, seconds):
    """Tests passed when the program says that some ran and none was skipped or failed."""
    found = SUMMARY.search(output)
    failed = re.findall(r"^\[  FAILED  \] ([\w./]+)", output, re.MULTILINE)
    if found is None:
        running = re.findall(r"^\[ RUN      \] ([\w./]+)", output, re.MULTILINE)
        return Verdict((ended(code, output, seconds) or "it did not say how many tests passed") + (f"; in {running[-1]}" if running else ""),
                       output=output)
    passed, skipped, bad = map(int, found.groups())
    data = {"passed": passed, "skipped": skipped, "failed": bad}
    summary = f"{passed} tests"
    if bad or failed:
        return Verdict(f"{bad} of {passed + skipped + bad} tests failed, {failed[0] if failed else 'unnamed'} first", data=data, output=output)
    if skipped:
        reason = re.search(r": Skipped\n(.*)", output)
        return Verdict(f"{skipped} tests were skipped although there is a GPU{': ' + reason.group(1)[:600] if reason else ''}", data=data,
                       output=output)
    if passed == 0:
        return Verdict("no test ran", data=data, output=output)
    return Verdict(ended(code, output, seconds), summary, data, output)


def tests(build, pattern, seconds, capability=0):
    def work(runner, seconds):
        code, output = runner.process([build / "bin/gpu_all", "test", "--gtest_color=no", f"--gtest_filter={pattern}"], seconds)
        return judge_tests(code, output, seconds)
    return Part(seconds, work, pattern, capability)


OURS = "mgplan"  # in the mangled name of each kernel of ours, and of none of the libraries'
TRACKS_OTHERS = "--initcheck-track-filtered-global-memory"


def sanitizer_words(checker, tool, runner):
    """The options that say what is looked at: memcheck at everything, racecheck at our kernels alone, because cuBLASLt's synchronise in ways
    that it takes for races. So does initcheck, but only where it sees what kernels beside ours write (from 2026.4 on: release notes of Compute
    Sanitizer); earlier ones would take products' results for memory that nothing wrote. Calls that fail on purpose, as asking for memory that
    is not there, are no errors."""
    words = [checker, "--tool", tool, "--print-limit", "20", "--error-exitcode", SANITIZER_FOUND_SOMETHING, "--report-api-errors", "no"]
    ours = tool == "racecheck"
    if tool == "initcheck":
        ours = TRACKS_OTHERS in runner.process([checker, "--help"], 20)[1]
    return words + (["--kernel-name", f"kns={OURS}"] if ours else [])


def sanitized(build, tool, pattern):
    """The same tests with each access of each kernel checked (memcheck), shared memory's races, or reads of what nothing wrote."""
    def work(runner, seconds):
        checker = shutil.which("compute-sanitizer", path=runner.environment["PATH"])
        if checker is None:
            return Verdict("compute-sanitizer was not found; it comes with the CUDA toolkit")
        code, output = runner.process([*sanitizer_words(checker, tool, runner), build / "bin/gpu_all", "test", "--gtest_color=no",
                                       f"--gtest_filter={pattern}"], seconds)
        found = re.findall(r"^=+ (?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", output, re.MULTILINE)
        errors = [int(a or b) for a, b in found]
        if code == SANITIZER_FOUND_SOMETHING or any(errors):
            return Verdict(f"{tool} found {max(errors, default=0)} errors", data={"errors": max(errors, default=0)}, output=output)
        verdict = judge_tests(code, output, seconds)
        if not verdict.why and not errors:
            verdict.why = f"{tool} printed no summary: it did not look"
        return verdict
    return Part(90, work, pattern, least=45)


def checked_ops(dtype):
    """Each op and each of fp8 once in small sizes: what runs under compute-sanitizer, 10 to 100 times as long."""
    return f"*GpuOps.AgreeWithTheCpu*/{dtype}:*GpuFp8Ops*/{dtype}:*GpuFp8Blocks*/{dtype}"


def card(build):
    def work(runner, seconds):
        file = Path(runner.scratch.name) / "card.json"
        code, output = runner.process([build / "bin/gpu_all", "bench", "--card", file], seconds)
        data = read_json(file)
        why = ended(code, output, seconds)
        if why or data is None:
            return Verdict(why or "it wrote nothing", data=data, output=output)
        built = runner.results["bundle"]["libraries"]
        for name in ("cuda", "cublas_lt", "cudnn", "nccl"):
            have, want = data.get(name) or "", built.get(name) or ""
            if not have:
                return Verdict(f"{name} was not loaded; libraries are looked for in {runner.environment['LD_LIBRARY_PATH']}", data=data,
                               output=output)
            if want and have.split(".")[0] != want.split(".")[0]:
                return Verdict(f"{name} is version {have} here, and the bundle was built for {want}: another major version", data=data,
                               output=output)
        return Verdict("", f"CUDA {data['cuda']}, driver {data['driver']}, cuBLASLt {data['cublas_lt']}, cuDNN {data['cudnn']}, "
                       f"NCCL {data['nccl']}", data, output)
    return work


# Two ranks on one card are two hosts for NCCL; sockets, whatever else there is.
ONE_CARD = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_DEBUG": "WARN"}


def nccl(build, mode):
    def work(runner, seconds):
        folder = Path(runner.scratch.name) / f"nccl-{mode}"
        jobs = [([build / "bin/gpu_all", "nccl", rank, 2, folder, mode], {**ONE_CARD, "NCCL_HOSTID": f"mgplan-{rank}"}) for rank in (0, 1)]
        done = runner.processes(jobs, seconds)
        output = "".join(text for _, text in done)
        why = next((f"rank {rank}: {bad}" for rank, (code, text) in enumerate(done) if (bad := ended(code, text, seconds))), "")
        checks = len(re.findall(r"^rank \d: (?!FAILED|bytes of)", output, re.MULTILINE))
        taken = re.findall(r"^rank 0: bytes of the card taken by (.*): (-?\d+)$", output, re.MULTILINE)
        data = {"checks": checks, "bytes": {what: int(count) for what, count in taken}}
        return Verdict(why or ("" if checks else "it checked nothing"), f"{checks} checks", data, output)
    return work


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def same_bits(build, layout):
    """Two processes over NCCL train to the bits of two threads of one process: sums of two do not depend on their order."""
    def work(runner, seconds):
        plan, scratch = build / "plans" / f"parity-{layout}.plan.json", Path(runner.scratch.name)
        command = [build / "bin/gpu_all", "mgplan", "run", plan, "--device", "cuda", "--deterministic", "--steps", 3, "--format", "json",
                   "--output"]
        threads, processes = scratch / f"{layout}-threads.json", scratch / f"{layout}-processes.json"
        code, output = runner.process([*command, threads], seconds / 2)
        why = ended(code, output, seconds / 2)
        if why:
            return Verdict(f"threads: {why}", output=output)
        meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "MGPLAN_SECRET": secrets.token_hex(16)}
        done = runner.processes([([*command, processes], {**ONE_CARD, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank),
                                                          "NCCL_HOSTID": f"mgplan-{rank}"}) for rank in (0, 1)], seconds / 2)
        output += "".join(text for _, text in done)
        for rank, (code, text) in enumerate(done):
            if bad := ended(code, text, seconds / 2):
                return Verdict(f"rank {rank} over NCCL: {bad}", output=output)
        ours, theirs = read_json(threads), read_json(processes)
        if ours is None or theirs is None or not ours.get("steps"):
            return Verdict("a run wrote no report", output=output)
        bits = [[(step["loss"], step["grad_norm"]) for step in run["steps"]] for run in (ours, theirs)]
        data = {"threads": bits[0], "processes": bits[1]}
        if bits[0] != bits[1]:
            return Verdict(f"losses and gradient norms differ: {bits[0]} in one process, {bits[1]} over NCCL", data=data, output=output)
        if not (ours["as_predicted"] and theirs["as_predicted"]):
            return Verdict("bytes or traffic are not as predicted", data=data, output=output)
        return Verdict("", f"{len(bits[0])} steps, the same bits", data, output)
    return work


def correctness(build):
    return {
        "card": Part(60, card(build)),
        "fp32": tests(build, "*GpuOps*/fp32", 60),
        "bf16": tests(build, "*GpuOps*/bf16", 60),
        "fp64": tests(build, "*GpuOps*/fp64", 60),
        "fp8": tests(build, "*GpuFp8*", 90, ADA),
        "attention": tests(build, "GpuAttention.*", 60),
        "memory": tests(build, "GpuMemory.*", 30),
        "timed_products": tests(build, "GpuProducts.*", 30),
        "large": tests(build, "GpuLarge.*", 60),
        "nccl": Part(60, nccl(build, "all")),
        "nccl_leave": Part(60, nccl(build, "leave")),
        "training_fp32": tests(build, "*GpuTraining*fp32*", 60),
        "training_bf16": tests(build, "*GpuTraining*bf16*", 90),
        "kinds": tests(build, "*GpuKind*", 60),
        "mixture": tests(build, "*GpuMixture*", 45),
        "run": tests(build, "GpuRun.*", 45),
        **{f"nccl_{layout}": Part(60, same_bits(build, layout)) for layout in ("tp2", "pp2", "dp2")},
        "memcheck": sanitized(build, "memcheck", checked_ops("fp32")),
        "racecheck": sanitized(build, "racecheck", checked_ops("fp32")),
        "initcheck": sanitized(build, "initcheck", checked_ops("fp32")),
        "memcheck_bf16": sanitized(build, "memcheck", checked_ops("bf16")),
    }


# ---- speed

def bench(build, what):
    def work(runner, seconds):
        file = Path(runner.scratch.name) / f"{what}.json"
        code, output = runner.process([build / "bin/gpu_all", "bench", f"--{what}", file], seconds)
        data = (read_json(file) or {}).get(what)
        why = ended(code, output, seconds) or ("" if data else "it measured nothing")
        if what == "layers" and not why:
            wrong = [name for name, pair in data["bytes"].items() if pair["predicted"] != pair["measured"]]
            why = f"bytes are not as predicted: {', '.join(wrong)}" if wrong else ""
        return Verdict(why, "", data, output)
    return work


def torch(kind, seconds=60):
    def work(runner, seconds):
        file = Path(runner.scratch.name) / f"torch-{kind}.json"
        code, output = runner.process([sys.executable, "-u", HERE / "torch_reference.py", kind, file], seconds)
        data = read_json(file)
        return Verdict(ended(code, output, seconds) or ("" if data else "it measured nothing"), "", data, output)
    return Part(seconds, work, least=seconds // 2)


def calibration(build):
    def work(runner, seconds):
        begin = monotonic()
        # With the results while it is not whole; what take kept of an earlier call is gone on with where this folder has none.
        name = bundles.begun_cluster(runner.results["bundle"])
        file, kept = runner.folder / name, runner.kept / name
        if not file.exists() and kept.exists():
            shutil.copyfile(kept, file)
        words = [build / "bin/gpu_all", "mgplan", "calibrate", "--device", "cuda", "--model", "llama3-8b,mixtral-8x7b", "--seconds", 0.05,
                 "--most-bytes", "256MiB", "--output", file]
        code, output = runner.process(words + (["--resume"] if file.exists() else []), seconds)
        if code == BAD_INPUT and file.exists():  # of another driver, or broken: it cannot be gone on with
            file.unlink()
            code, more = runner.process(words, seconds - (monotonic() - begin))
            output += more
        cluster, why = read_json(file), ended(code, output, seconds)
        if not why and not (cluster or {}).get("calibration", {}).get("complete"):
            why = "the cluster file is not complete"
        if not why:
            runner.results["cluster"] = cluster
            file.unlink()
            kept.unlink(missing_ok=True)
        measured = {key: len(cluster["calibration"].get(key, [])) for key in ("products", "attention", "kernels")} if cluster else None
        return Verdict(why, "" if why else "a cluster file for --cluster", measured, output)
    return Part(240, work, least=20, goes_on=True)


TORCH = ("eager", "cudnn", "compiled", "graphs")


def beside_torch(runner, seconds):
    """Judges what earlier parts measured: our layers against the fastest way in which PyTorch ran them. A way that failed has failed by
    itself, and is named here."""
    measured = {name: ((runner.results["parts"].get(name, {}).get("data") or {}).get("layers") or
                       (runner.results["parts"].get(name, {}).get("data") or {})).get("tokens_per_second")
                for name in ("layers", *(f"torch_{kind}" for kind in TORCH))}
    missing = [name for name, rate in measured.items() if not rate]
    if "layers" in missing or len(missing) == len(TORCH):
        return Verdict(f"{', '.join(missing)} measured nothing to compare")
    ours = measured.pop("layers")
    measured = {name: rate for name, rate in measured.items() if rate}
    best = max(measured, key=measured.get)
    ratio = ours / measured[best]
    summary = f"{ratio:.2f} times {best}, {ours:.0f} and {measured[best]:.0f} tokens/s"
    if missing:
        summary += f" ({', '.join(missing)} measured nothing)"
    return Verdict("" if ratio >= LEAST_OF_TORCH else f"{summary}: less than {LEAST_OF_TORCH} times", summary, {"ratio": ratio, "best": best})


def speed(build):
    return {
        "card": Part(60, card(build)),
        "memory_of_context": Part(60, bench(build, "memory")),
        "products": Part(60, bench(build, "products")),
        "layers": Part(90, bench(build, "layers")),
        "torch_products": torch("products"),
        "torch_eager": torch("eager"),
        "torch_cudnn": torch("cudnn"),
        "calibration": calibration(build),
        "torch_compiled": torch("compiled", 120),
        "torch_graphs": torch("graphs", 120),
        "beside_torch": Part(10, beside_torch, least=0, again=True),
    }


# ---- prediction

def verified(build, plan, words):
    def work(runner, seconds):
        cluster = Path(runner.scratch.name) / "cluster.json"
        if "cluster" not in runner.results:
            return Verdict("there is no cluster file of this card: run the command speed first, and name its results.json with --earlier")
        cluster.write_text(json.dumps(runner.results["cluster"]), encoding="utf-8")
        file = Path(runner.scratch.name) / "verified.json"
        file.unlink(missing_ok=True)
        code, output = runner.process([build / "bin/gpu_all", "mgplan", "verify", build / "plans" / plan["file"], "--device", "cuda",
                                       "--steps", 8, "--cluster", cluster, "--tolerance", TOLERANCE, "--format", "json", "--output", file, *words], seconds)
        data = read_json(file)
        if data is None:
            return Verdict(ended(code, output, seconds) or "it wrote no report", output=output)
        time = data["time"]
        data["plan"] = plan
        summary = (f"predicted {1e3 * time['predicted_seconds']:.2f} ms, measured {1e3 * time['measured_seconds']:.2f} ms, "
                   f"error {100 * time['error']:+.1f} %")
        if not data["as_predicted"]:
            return Verdict(f"bytes or traffic are not as predicted; {summary}", data=data, output=output)
        if not time["judged"]:
            return Verdict(f"the time was not judged: {time['why_not_judged']}", data=data, output=output)
        if code == MISSED:
            return Verdict(summary, data=data, output=output)
        return Verdict(ended(code, output, seconds), summary, data, output)
    return work


@functools.lru_cache(maxsize=None)
def plans_of(build):
    """[{"file", "rank" (-1: all of them), "name"}]: what pack made. Raises Refused where it made none."""
    bundles.read_bundle(build)  # without one there are no plans either, and it says so
    listed = [plan for plan in read_json(build / "plans" / "plans.json") or [] if not plan["file"].startswith("parity-")]
    if not listed:
        raise bundles.Refused(f"{build}/plans/plans.json names no plan to judge; make the bundle again with tests/gpu/pack")
    return listed


def prediction(build):
    parts = {}
    for plan in plans_of(build):
        if plan["rank"] >= 0:
            parts[f"rank_{plan['name']}"] = Part(80, verified(build, plan, ["--rank", plan["rank"]]))
        else:
            for scope in ("none", "layer", "full_iteration"):
                parts[f"graphs_{plan['name']}_{scope}"] = Part(60, verified(build, plan, ["--memory", "arena", "--cuda-graphs", scope]))
    return parts


# ---- a borrowed card

# What tells most, in that order: whether numbers are right, how fast the layers are, and as much of the cluster file as there is time for.
# Each group ends by its share of the command's seconds; what one leaves goes to the next.
FIRST = ((0.45, ("card", "fp32", "bf16", "fp8", "attention", "nccl", "training_bf16", "run")),
         (0.8, ("layers", "torch_eager", "torch_cudnn", "products", "torch_products")),
         (1.0, ("calibration",)))


def first(build):
    parts = {**correctness(build), **speed(build)}
    return {name: dataclasses.replace(parts[name], until=until) for until, names in FIRST for name in names}


def rest(build):
    """All parts of the three commands: those of `first`, then what needs its cluster file, then what else speed has, then correctness."""
    return {**first(build), **prediction(build), **speed(build), **correctness(build)}


def in_order(parts, results):
    """The parts as a command runs them: those that failed already behind those that nothing is known of, and judges of others last."""
    sources = results["bundle"]["sources"]

    def turn(name):
        before = results["parts"].get(name, {})
        failed = before.get("status") == "failed" and before.get("sources") == sources and not parts[name].goes_on
        return 2 if parts[name].again else 1 if failed else 0
    return {name: parts[name] for name in sorted(parts, key=turn)}


COMMANDS = {"correctness": correctness, "speed": speed, "prediction": prediction, "first": first, "rest": rest}
