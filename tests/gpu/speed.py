"""The parts of tests/gpu/run's command speed."""

import shutil
import sys
from pathlib import Path
from time import monotonic

import bundle as bundles
import outcomes
from correctness import card
from part import Part, Verdict, ended, finite, moment, read_json

HERE = Path(__file__).resolve().parent
BY_OTHERS = "before the context, by others"
LEAST_OF_TORCH = 1.1  # times the tokens per second of the best PyTorch
BAD_INPUT = 2  # exit code of mgplan for input that it refuses


NEAR = 0.25  # nats: chance moves the mean loss of 8,192 drawn tokens by hundredths
LOUDER = 1.0  # nats that the loss may have risen by the last step, by a rate without warm-up


def wrong_layers(data):
    """What speaks against layers that ran to the end: a loss that such weights do not have, or bytes that were not predicted."""
    first, last, expected = data.get("first_loss"), data.get("last_loss"), data["expected_first_loss"]
    if not finite(first) or not finite(last):
        return f"losses are no numbers: the first {first}, the last {last}"
    if abs(first - expected) > NEAR:
        return f"the first loss is {first:.4f}, and drawn weights have {expected:.4f} (to {NEAR})"
    if last > first + LOUDER:
        return f"the loss rose from {first:.4f} to {last:.4f}"
    wrong = [name for name, pair in data["bytes"].items() if pair["predicted"] != pair["measured"]]
    return f"bytes are not as predicted: {', '.join(wrong)}" if wrong else ""


def bench(build, what):
    def work(runner, seconds):
        file = Path(runner.scratch.name) / f"{what}.json"
        code, output = runner.process([build / "bin/gpu_all", "bench", f"--{what}", file], seconds)
        data = (read_json(file) or {}).get(what)
        why = ended(code, output, seconds) or ("" if data else "it measured nothing")
        if what == "layers" and not why:
            why = wrong_layers(data)
        return Verdict(why, "", data, output)
    return work


def memory_of_context(build):
    """Bytes of the card behind each first use, and what others had taken of it before, where nvidia-smi tells that."""
    measure = bench(build, "memory")

    def work(runner, seconds):
        before = [card["used_mib"] for card in bundles.query_cards()[:1]]
        verdict = measure(runner, seconds)
        if verdict.data and before and before[0].isdigit():
            verdict.data.insert(0, {"step": BY_OTHERS, "bytes": int(before[0]) << 20})
        return verdict
    return work


def torch(kind, seconds=60):
    def work(runner, seconds):
        file = Path(runner.scratch.name) / f"torch-{kind}.json"
        code, output = runner.process([sys.executable, "-u", HERE / "torch_reference.py", kind, file], seconds)
        data = read_json(file)
        return Verdict(ended(code, output, seconds) or ("" if data else "it measured nothing"), "", data, output)
    return Part(seconds, work, least=seconds // 2, timed=True)


def calibration(build):
    def work(runner, seconds):
        begin = monotonic()
        # With the results while it is not whole; what take kept of an earlier call is gone on with where this folder has none.
        name = outcomes.begun_cluster(runner.results["bundle"])
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
            runner.results.update(cluster=cluster, cluster_of={**{key: runner.results["bundle"][key] for key in ("sources", "commit")},
                                                               "at": moment()})
            file.unlink()
            kept.unlink(missing_ok=True)
        elif file.exists() and file.parent != runner.kept:
            runner.kept.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, kept)
        measured = {key: len(cluster.get("calibration", {}).get(key, [])) for key in ("products", "attention", "kernels")} if cluster else None
        return Verdict(why, "" if why else "a cluster file for --cluster", measured, output)
    return Part(240, work, least=20, goes_on=True, timed=True)


TORCH = ("eager", "cudnn", "compiled", "compiled_cudnn", "graphs")


def tokens_per_second(part):
    """What a part measured, also on an earlier day; none where it failed."""
    data = (part.get("data") or {}) if part.get("status") in ("passed", "left out") else {}
    return (data.get("layers") or data).get("tokens_per_second")


def beside_torch(runner, seconds):
    """Judges what earlier parts measured: our layers against the fastest way in which PyTorch ran them, of all ways: which of them is the
    fastest nobody knows before."""
    found, now = runner.results["parts"], runner.results["bundle"]["sources"]
    rates = {name: tokens_per_second(found.get(name, {})) for name in (f"torch_{kind}" for kind in TORCH)}
    layers = found.get("layers", {})  # of these sources: PyTorch does not depend on them
    ours = tokens_per_second(layers) if layers.get("status") == "passed" and layers["sources"] == now else None
    missing = [name for name, rate in {"layers": ours, **rates}.items() if not rate]
    if missing:
        return Verdict(f"no verdict: {', '.join(missing)} measured nothing")
    best = max(rates, key=rates.get)
    ratio = ours / rates[best]
    summary = f"{ratio:.2f} times {best}, {ours:.0f} and {rates[best]:.0f} tokens/s"
    return Verdict("" if ratio >= LEAST_OF_TORCH else f"{summary}: less than {LEAST_OF_TORCH} times", summary, {"ratio": ratio, "best": best})


def speed(build):
    return {
        "card": Part(60, card(build)),
        "memory_of_context": Part(60, memory_of_context(build)),
        "products": Part(60, bench(build, "products"), timed=True),
        "layers": Part(90, bench(build, "layers"), timed=True),
        "torch_products": torch("products"),
        "torch_eager": torch("eager"),
        "torch_cudnn": torch("cudnn"),
        "calibration": calibration(build),
        "torch_compiled_cudnn": torch("compiled_cudnn", 120),
        "torch_compiled": torch("compiled", 120),
        "torch_graphs": torch("graphs", 120),
        "beside_torch": Part(10, beside_torch, least=0, again=True),
    }
