"""The parts of tests/gpu/run's command correctness."""

import re
import shutil
from pathlib import Path

import bundle as bundles
import libraries
from part import ALL_CARDS, Part, Verdict, ended, finite, of, read_json

SANITIZER_FOUND_SOMETHING = 86
FP8_CARDS = ((89, 1000),)  # from Ada on
BLOCK_CARDS = ((90, 91), (100, 120))  # Hopper and Blackwell of data centres multiply with scales of blocks: GpuFp8Blocks in ops_test.cpp

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


def tests(build, pattern, seconds, cards=ALL_CARDS):
    def work(runner, seconds):
        code, output = runner.process([build / "bin/gpu_all", "test", "--gtest_color=no", f"--gtest_filter={pattern}"], seconds)
        return judge_tests(code, output, seconds)
    return Part(seconds, work, pattern, cards)


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


def sanitized(build, tool, dtype):
    """The same tests with each access of each kernel checked (memcheck), shared memory's races, or reads of what nothing wrote."""
    def work(runner, seconds):
        checker = shutil.which("compute-sanitizer", path=runner.environment["PATH"])
        if checker is None:
            return Verdict("compute-sanitizer was not found; it comes with the CUDA toolkit")
        capability = bundles.capability_of(runner.results["card"])
        code, output = runner.process([*sanitizer_words(checker, tool, runner), build / "bin/gpu_all", "test", "--gtest_color=no",
                                       f"--gtest_filter={checked_ops(dtype, capability)}"], seconds)
        found = re.findall(r"^=+ (?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", output, re.MULTILINE)
        errors = [int(a or b) for a, b in found]
        if code == SANITIZER_FOUND_SOMETHING or any(errors):
            return Verdict(f"{tool} found {max(errors, default=0)} errors", data={"errors": max(errors, default=0)}, output=output)
        verdict = judge_tests(code, output, seconds)
        if not verdict.why and not errors:
            verdict.why = f"{tool} printed no summary: it did not look"
        return verdict
    return Part(90, work, least=45)


def checked_ops(dtype, capability):
    """Each op and each of fp8 that such a card has, once in small sizes: what runs under compute-sanitizer, 10 to 100 times as long."""
    suites = (("*GpuOps.AgreeWithTheCpu*", ALL_CARDS), ("*GpuFp8Ops*", FP8_CARDS), ("*GpuFp8Blocks*", BLOCK_CARDS))
    return ":".join(f"{suite}/{dtype}" for suite, cards in suites if of(cards, capability))


def card(build):
    def work(runner, seconds):
        file = Path(runner.scratch.name) / "card.json"
        code, output = runner.process([build / "bin/gpu_all", "bench", "--card", file], seconds)
        data = read_json(file)
        why = ended(code, output, seconds)
        if why or data is None:
            return Verdict(why or "it wrote nothing", data=data, output=output)
        summary = (f"CUDA {data['cuda']}, driver {data['driver']}, cuBLASLt {data['cublas_lt']}, cuDNN {data['cudnn']}, "
                   f"NCCL {data['nccl']}")
        return Verdict(libraries.judged(data, runner), summary, data, output)
    return work


# Two ranks on one card are two hosts for NCCL; sockets, whatever else there is. Messages pass behind open sends: in one hardware queue, as
# a shell may have it for Megatron-LM, they could not.
ONE_CARD = {"CUDA_DEVICE_MAX_CONNECTIONS": "32", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_DEBUG": "WARN"}


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


STEPS = 3  # of runs whose bits are compared


def judge_bits(threads, processes, output=""):
    """Of two reports of `mgplan run`: each step of both is there, with numbers (not one that is none, which JSON has as null), and the same."""
    bits = [[(step["loss"], step["grad_norm"]) for step in run["steps"]] for run in (threads, processes)]
    data = {"threads": bits[0], "processes": bits[1]}
    for name, steps in data.items():
        if len(steps) != STEPS or not all(finite(number) for step in steps for number in step):
            return Verdict(f"{STEPS} steps with finite losses and gradient norms were asked for, and the {name} made {steps}", data=data,
                           output=output)
    if bits[0] != bits[1]:
        return Verdict(f"losses and gradient norms differ: {bits[0]} in one process, {bits[1]} over NCCL", data=data, output=output)
    if not (threads["as_predicted"] and processes["as_predicted"]):
        return Verdict("bytes or traffic are not as predicted", data=data, output=output)
    return Verdict("", f"{STEPS} steps, the same bits", data, output)


def same_bits(build, layout):
    """Two processes over NCCL train to the bits of two threads of one process: sums of two do not depend on their order."""
    def work(runner, seconds):
        plan, scratch = build / "plans" / f"parity-{layout}.plan.json", Path(runner.scratch.name)
        command = [build / "bin/gpu_all", "mgplan", "run", plan, "--device", "cuda", "--deterministic", "--steps", STEPS, "--format", "json",
                   "--output"]
        threads, processes = scratch / f"{layout}-threads.json", scratch / f"{layout}-processes.json"
        code, output = runner.process([*command, threads], seconds / 2)
        why = ended(code, output, seconds / 2)
        if why:
            return Verdict(f"threads: {why}", output=output)
        meeting = {"WORLD_SIZE": "2", "MGPLAN_JOB_FOLDER": str(scratch / f"{layout}-job")}
        done = runner.processes([([*command, processes], {**ONE_CARD, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank),
                                                          "NCCL_HOSTID": f"mgplan-{rank}"}) for rank in (0, 1)], seconds / 2)
        output += "".join(text for _, text in done)
        for rank, (code, text) in enumerate(done):
            if bad := ended(code, text, seconds / 2):
                return Verdict(f"rank {rank} over NCCL: {bad}", output=output)
        ours, theirs = read_json(threads), read_json(processes)
        if ours is None or theirs is None or not ours.get("steps"):
            return Verdict("a run wrote no report", output=output)
        return judge_bits(ours, theirs, output)
    return work


def correctness(build):
    return {
        "card": Part(60, card(build)),
        "fp32": tests(build, "*GpuOps*/fp32", 60),
        "bf16": tests(build, "*GpuOps*/bf16", 60),
        "fp64": tests(build, "*GpuOps*/fp64", 60),
        "fp8": tests(build, "GpuFp8.*:*GpuFp8Ops*", 90, FP8_CARDS),
        "fp8_blocks": tests(build, "*GpuFp8Blocks*", 30, BLOCK_CARDS),
        "attention": tests(build, "GpuAttention.*", 60),
        "memory": tests(build, "GpuMemory.*", 30),
        "timed_products": tests(build, "GpuProducts.*", 30),
        "large": tests(build, "GpuLarge.*", 60),
        "nccl": Part(60, nccl(build, "all")),
        "nccl_leave": Part(75, nccl(build, "leave")),
        "training_fp32": tests(build, "*GpuTraining*fp32*", 60),
        "training_bf16": tests(build, "*GpuTraining*bf16*", 90),
        "kinds": tests(build, "*GpuKind*", 60),
        "mixture": tests(build, "*GpuMixture*", 45),
        "run": tests(build, "GpuRun.*", 45),
        **{f"nccl_{layout}": Part(60, same_bits(build, layout)) for layout in ("tp2", "pp2", "dp2")},
        "memcheck": sanitized(build, "memcheck", "fp32"),
        "racecheck": sanitized(build, "racecheck", "fp32"),
        "initcheck": sanitized(build, "initcheck", "fp32"),
        "memcheck_bf16": sanitized(build, "memcheck", "bf16"),
    }
