"""The package and the command give the same JSON, to the bit."""

import json
import pickle

import pytest

import mgplan
from conftest import LLAMA, MEGATRON, without_clock

pytestmark = pytest.mark.filterwarnings("ignore::mgplan.InputWarning")

PLANS = {
    "dense": (("llama3-8b", 16), {}, "--world 16 --model llama3-8b"),
    "pins": (("llama3-70b", 64), {"tp": [4, 8], "recompute": ["none", "full"], "global_batch": 512, "seq": 8192, "top": 3},
             "--world 64 --model llama3-70b --tp 4,8 --recompute none,full --global-batch 512 --seq 8192 --top 3"),
    "experts": (("mixtral-8x7b", 16), {"ep": 8, "precision": "fp8", "routing_skew": "zipf", "top": 2},
                "--world 16 --model mixtral-8x7b --ep 8 --precision fp8 --routing-skew zipf --top 2"),
    "cluster": (("llama3-8b", 8, {"preset": "dgx-a100-80g", "gpus_per_node": 4}), {"no_distributed_optimizer": True},
                "--world 8 --model llama3-8b --cluster dgx-a100-80g,gpus_per_node=4 --no-distributed-optimizer"),
    "by memory": (("gpt3-175b", 128, "dgx-h200"), {"objective": "memory", "engine": "megatron", "sequence_parallel": True},
                  "--world 128 --model gpt3-175b --cluster dgx-h200 --objective memory --engine megatron --sequence-parallel on"),
    "nothing fits": (("llama3-70b", 2), {}, "--world 2 --model llama3-70b"),
    "study": (("llama3-8b", [8, 16]), {"tokens": "15T"}, "--world 8,16 --model llama3-8b --tokens 15T"),
}


@pytest.mark.parametrize("name", PLANS)
def test_plan(command, name):
    arguments, pins, words = PLANS[name]
    said = command("plan", *words.split(), "--format", "json")
    ranking = mgplan.plan(*arguments, **pins)
    assert without_clock(ranking.to_json()) == without_clock(said.out)
    assert said.code == (0 if len(ranking) else 3)
    assert [plan.predicted for plan in ranking] == [plan["predicted"] for plan in json.loads(said.out)["plans"]]
    assert list(ranking.answer) == list(json.loads(said.out))  # in its order, too


def test_plan_of_a_file(command, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(LLAMA))
    said = command("plan", "--world", 8, "--model", path, "--format", "json")
    assert without_clock(mgplan.plan(path, 8).to_json()) == without_clock(said.out)
    of_dict, of_file = without_clock(mgplan.plan(LLAMA | {"_name_or_path": "me/mine"}, 8).to_json()), without_clock(said.out)
    assert (of_dict["model"].pop("source"), of_file["model"].pop("source")) == ("mine", str(path))
    assert of_dict == of_file


SIMULATIONS = {
    "one": (("llama3-8b", 16), {"tp": 2, "pp": 2, "micro_batch": 2}, "--model llama3-8b --world 16 --tp 2 --pp 2 --micro-batch 2"),
    "ranks": (("llama3-8b", 8), {"pp": 4, "vpp": 2, "per_rank": True}, "--model llama3-8b --world 8 --pp 4 --vpp 2 --per-rank"),
    "too large": (("llama3-70b", 8), {"recompute": "full"}, "--model llama3-70b --world 8 --recompute full"),
    "disturbed": (("llama3-8b", 8), {"straggler": "3=1.2", "jitter": 2.5}, "--model llama3-8b --world 8 --straggler 3=1.2 --jitter 2.5"),
}


@pytest.mark.parametrize("name", SIMULATIONS)
def test_simulate(command, name):
    arguments, pins, words = SIMULATIONS[name]
    said = command("simulate", *words.split(), "--format", "json")
    prediction = mgplan.simulate(*arguments, **pins)
    assert prediction.to_json() == said.out
    assert prediction.fits is (said.code == 0)


def test_simulate_with_a_memory_snapshot(command, tmp_path):
    written, other = tmp_path / "command.pickle", tmp_path / "python.pickle"
    said = command("simulate", *"--model llama3-8b --world 8 --tp 2 --memory-snapshot".split(), written, "--format", "json")
    assert said.code == 0, said.err
    prediction = mgplan.simulate("llama3-8b", 8, tp=2, memory_snapshot=other)
    stated = prediction.answer["memory_snapshot"]
    assert dict(stated) | {"file": str(written)} == json.loads(said.out)["memory_snapshot"]
    assert other.read_bytes() == written.read_bytes()
    snapshot = pickle.loads(other.read_bytes())
    assert sum(segment["total_size"] for segment in snapshot["segments"]) == stated["reserved_bytes"]


def test_simulate_a_plan(command, tmp_path):
    best = mgplan.plan("llama3-8b", 16, top=1)[0]
    path = tmp_path / "plan.json"
    best.save(path)
    said = command("simulate", path, "--format", "json")
    assert said.code == 0, said.err
    for given in (best, path, str(path), best.plan_file()):
        assert mgplan.simulate(given).to_json() == said.out
    assert mgplan.simulate(best).predicted["iteration_seconds"] == best.iteration_seconds


def test_a_plan_file_is_the_one_that_the_command_saves(command, tmp_path):
    path = tmp_path / "plan.json"
    assert command("plan", "--world", 16, "--model", "llama3-8b", "--pick", 3, "--save-plan", path).code == 0
    ranking = mgplan.plan("llama3-8b", 16)
    assert ranking[2].plan_file() == json.loads(path.read_text())
    ranking[2].save(tmp_path / "mine.json")
    assert (tmp_path / "mine.json").read_bytes() == path.read_bytes()


def test_check(command, tmp_path):
    path = tmp_path / "args.txt"
    path.write_text(MEGATRON)
    said = command("check", "--megatron-args", path, "--world", 16, "--format", "json")
    assert said.code == 3, said.err
    flags = {"num-layers": 32, "hidden_size": 4096, "--num-attention-heads": 32, "seq-length": 4096, "max-position-embeddings": 8192,
             "micro-batch-size": 4, "global-batch-size": 128, "tensor-model-parallel-size": 2, "vocab-size": 32000, "swiglu": True,
             "bf16": True, "lr": "1e-4", "sequence-parallel": False}
    for given in (path, str(path)):
        assert mgplan.check(given, 16).to_json() == said.out
    for given in (MEGATRON, MEGATRON.split(), flags):
        assert mgplan.check(given, 16).to_json() == said.out.replace(str(path), "megatron_args")  # the model's source
    check = mgplan.check(path, 16)
    assert (check.legal, check.fits, check.runs, len(check.better)) == (True, False, False, 3)
    assert check.better[0].changes == json.loads(said.out)["better"][0]["changes"]


@pytest.mark.parametrize("to", ["megatron-args", "megatron-yaml", "mgplan"])
def test_export(command, tmp_path, to):
    best = mgplan.plan("mixtral-8x7b", 16, top=1)[0]
    path = tmp_path / "plan.json"
    best.save(path)
    export = mgplan.export(best, to=to)
    assert str(export) == command("export", path, "--to", to).out
    assert export.to_json() == command("export", path, "--to", to, "--format", "json").out
    assert mgplan.export(path, to=to).text == mgplan.export(best.plan_file(), to=to).text == export.text
    assert ("--num-layers" in export.arguments) is (to != "mgplan")


def test_commands_of_a_plan(command, tmp_path):
    best = mgplan.plan("mixtral-8x7b", 16, pp=2, vpp=2, top=1)[0]
    path = tmp_path / "plan.json"
    best.save(path)
    for function in (mgplan.schedule, mgplan.groups, mgplan.split, mgplan.graphs, mgplan.buffers):
        said = command(function.__name__, path, "--format", "json")
        assert said.code == 0, said.err
        for given in (best, path, best.plan_file()):
            assert function(plan=given).to_json() == said.out
    assert mgplan.buffers(plan=best, pp_rank=1).to_json() == command("buffers", path, "--pp-rank", 1, "--format", "json").out


def test_diff(command, tmp_path):
    plans = mgplan.plan("llama3-8b", 16, top=2)
    paths = [tmp_path / name for name in "ab"]
    for plan, path in zip(plans, paths, strict=True):
        plan.save(path)
    of_files, of_plans = mgplan.diff(*paths), mgplan.diff(*plans)
    assert of_files.to_json() == command("diff", *paths, "--format", "json").out
    assert of_plans["fields"] == of_files["fields"] != []
    assert mgplan.diff(plans[0], paths[1])["fields"] == mgplan.diff(paths[0], plans[1])["fields"] == of_files["fields"]
    assert of_plans["a"]["name"] == "plan a"


def test_side_by_side(command):
    said = command("side-by-side", "--model", "llama3-8b", "--on", "8:dgx-h100", "--on", "8:dgx-h200,price=4", "--tokens", "1T", "--format", "json")
    assert said.code == 0, said.err
    beside = mgplan.side_by_side("llama3-8b", ["8:dgx-h100", "8:dgx-h200,price=4"], tokens="1T")
    assert beside.to_json() == said.out
    assert [each["cluster"]["name"] if isinstance(each["cluster"], dict) else each["cluster"] for each in beside["options"]] \
        == ["dgx-h100", "dgx-h200"]


def test_least(command):
    said = command("least", "--model", "llama3-8b", "--cluster", "dgx-a100-40g", "--up-to", 16, "--format", "json")
    assert said.code == 0, said.err
    least = mgplan.least("llama3-8b", "dgx-a100-40g", up_to=16)
    assert least.to_json() == said.out
    assert mgplan.least(mgplan.models("llama3-8b").to_dict(), mgplan.clusters("dgx-a100-40g").to_dict(), up_to=16)["gpus"] == least["gpus"]
    assert mgplan.least("llama3-8b", "dgx-a100-40g", up_to=2, recompute="none")["gpus"] is None


def test_presets(command):
    for function in (mgplan.models, mgplan.clusters):
        name = function.__name__
        assert function() == json.loads(command(name, "--format", "json").out)[name]
    assert mgplan.models("llama3-8b").to_json() == command("models", "show", "llama3-8b", "--format", "json").out
    assert mgplan.clusters("dgx-h100").to_json() == command("clusters", "show", "dgx-h100", "--format", "json").out


OTHERS = {
    "split": (lambda: mgplan.split("llama3-8b", pp=4, vpp=2), "--model llama3-8b --pp 4 --vpp 2"),
    "graphs": (lambda: mgplan.graphs("llama3-8b", pp=4, microbatches=8), "--model llama3-8b --pp 4 --microbatches 8"),
    "groups of lengths": (lambda: mgplan.groups(16, cp=4, hybrid_context_parallel=True), "--world 16 --cp 4 --hybrid-context-parallel"),
    "groups": (lambda: mgplan.groups(16, tp=2, pp=2, order="tp-cp-ep-pp-dp"), "--world 16 --tp 2 --pp 2 --order tp-cp-ep-pp-dp"),
    "schedule": (lambda: mgplan.schedule(4, 8, vpp=2), "--pp 4 --microbatches 8 --vpp 2"),
    "schedule kind": (lambda: mgplan.schedule(pp=2, microbatches=4, kind="zb-h1"), "--pp 2 --microbatches 4 --kind zb-h1"),
    "buffers": (lambda: mgplan.buffers("llama3-8b", 8, tp=2, shards=True, bucket_size="100M"),
                "--model llama3-8b --dp 8 --tp 2 --shards --bucket-size 100M"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_explaining(command, name):
    function, words = OTHERS[name]
    assert function().to_json() == command(name.split()[0], *words.split(), "--format", "json").out


def test_buffers_of_listed_parameters(command, tmp_path):
    parameters = [{"name": "w", "shape": [64, 4096], "dtype": "bf16"}, {"name": "b", "shape": [], "dtype": "fp32"}]
    path = tmp_path / "params.json"
    path.write_text(json.dumps(parameters))
    said = command("buffers", "--params", path, "--dp", 4, "--format", "json").out
    assert mgplan.buffers(params=parameters, dp=4).to_json() == mgplan.buffers(params=path, dp=4).to_json() == said


def test_routing_counts(command, tmp_path):
    path = tmp_path / "counts.json"
    path.write_text("[9, 1, 1, 1, 1, 1, 1, 1]")
    said = command("simulate", "--model", "mixtral-8x7b", "--world", 16, "--ep", 8, "--routing-skew", path, "--format", "json")
    given = mgplan.simulate("mixtral-8x7b", 16, ep=8, routing_skew=[9, 1, 1, 1, 1, 1, 1, 1])
    assert given.to_json() == said.out
    assert given.iteration_seconds > mgplan.simulate("mixtral-8x7b", 16, ep=8, routing_skew="balanced").iteration_seconds


def test_a_whole_cluster_as_a_dict(command):
    whole = json.loads(command("clusters", "show", "dgx-h200", "--format", "json").out)
    assert mgplan.simulate("llama3-8b", 8, whole).predicted == mgplan.simulate("llama3-8b", 8, "dgx-h200").predicted
