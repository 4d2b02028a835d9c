"""What cannot be used raises InputError with the command's words, taken apart; nothing is computed, and nothing else is raised."""

import itertools
import json
import pickle
import threading

import pytest

import mgplan
from conftest import LLAMA

OBJECT = object()


class Broken:
    def __repr__(self):
        raise RuntimeError("no")

    def to_dict(self):
        raise RuntimeError("no")


def loop():
    endless = {}
    endless["again"] = endless
    return endless


PLAN = "plan --world 16 --model llama3-8b"
# The call, the command that says the same ("" where only Python can be given such a thing), field, value, part of the rule, of the way out.
WRONG = {
    "model": (lambda: mgplan.plan("lama3-8b", 16), "plan --world 16 --model lama3-8b", "model", "lama3-8b", "unknown model",
              "did you mean llama3-8b?"),
    "no file": (lambda: mgplan.plan("./none.json", 16), "plan --world 16 --model ./none.json", "model", "./none.json", "is not there",
                "check the path"),
    "world": (lambda: mgplan.plan("llama3-8b", 0), "plan --world 0 --model llama3-8b", "world", 0, "is out of range", "from 1 to"),
    "no world": (lambda: mgplan.plan("llama3-8b", None), "plan --model llama3-8b", "world", None, "is missing", "give the number of GPUs"),
    "huge": (lambda: mgplan.plan("llama3-8b", 10**30), f"plan --model llama3-8b --world {10**30}", "world", 10**30, "is", "use"),
    "pin": (lambda: mgplan.plan("llama3-8b", 16, tpp=2), PLAN + " --tpp=2", "tpp", 2, "unknown option --tpp", "did you mean --tp"),
    "far pin": (lambda: mgplan.plan("llama3-8b", 16, zzzzzz=2), PLAN + " --zzzzzz=2", "zzzzzz", 2, "unknown option", "--help"),
    "other name": (lambda: mgplan.plan("llama3-8b", gpus=64), "plan --model llama3-8b --gpus=64", "gpus", 64, "unknown option --gpus",
                   "use --world"),
    "preset": (lambda: mgplan.models("lama3-8b"), "models show lama3-8b", None, None, "unknown model", "did you mean llama3-8b"),
    "no second plan": (lambda: mgplan.diff({}, 3), "", "plan", 3, "is a int", "give a plan"),
    "sweep": (lambda: mgplan.sweep("llama3-8b", 16, over={"seq": "4k"}), "", "over['seq']", "4k", "is no list of values", "give one"),
    "one cluster": (lambda: mgplan.side_by_side("llama3-8b", ["8:dgx-h100"]), "side-by-side --on=8:dgx-h100 --model llama3-8b", "on", None,
                    "", ""),
    "least": (lambda: mgplan.least("llama3-8b", up_to=0), "least --model llama3-8b --up-to 0", "up_to", 0, "is out of range", "from 1 to"),
    "on": (lambda: mgplan.side_by_side("llama3-8b", "8:dgx-h100"), "", "on", "8:dgx-h100", "is no list", "give one"),
    "plan and size": (lambda: mgplan.groups(8, plan=mgplan.simulate("llama3-8b", 8)), "", "world", 8, "a PLAN holds what --world says",
                      "drop one of them"),
    "rule": (lambda: mgplan.plan("llama3-8b", 16, tp=3), PLAN + " --tp 3", "tp", 3, "does not divide world = 16", "use 1, 2, 4, 8 or 16"),
    "word": (lambda: mgplan.plan("llama3-8b", 16, tp="x"), PLAN + " --tp x", "tp", "x", "is not a whole number", "use one from 1"),
    "real": (lambda: mgplan.plan("llama3-8b", 16, tp=2.5), PLAN + " --tp 2.5", "tp", 2.5, "is not a whole number", "use one from 1"),
    "truth": (lambda: mgplan.plan("llama3-8b", 16, tp=True), "", "tp", True, "is a bool", "give a number"),
    "empty": (lambda: mgplan.plan("llama3-8b", 16, tp=[]), PLAN + " --tp=", "tp", [], "is empty", "such as 1,2,4"),
    "negative": (lambda: mgplan.plan("llama3-8b", 16, pp=-1), PLAN + " --pp=-1", "pp", -1, "is out of range", "from 1 to"),
    "choice": (lambda: mgplan.plan("llama3-8b", 16, recompute="some"), PLAN + " --recompute some", "recompute", "some", "is not known",
               "use none, selective or full"),
    "precision": (lambda: mgplan.plan("llama3-8b", 16, precision="int8"), PLAN + " --precision int8", "precision", "int8", "is not known",
                  "bf16"),
    "cluster": (lambda: mgplan.plan("llama3-8b", 16, "dgx-h10"), PLAN + " --cluster dgx-h10", "cluster", "dgx-h10", "unknown preset",
                "did you mean dgx-h100"),
    "figure": (lambda: mgplan.plan("llama3-8b", 16, {"preset": "dgx-h100", "gpus_per_node": -4}),
               PLAN + " --cluster dgx-h100,gpus_per_node=-4", "gpus_per_node", "-4", "is out of range", "from 1 to 1024"),
    "cluster file": (lambda: mgplan.plan("llama3-8b", 16, {"gpus": 8}), "", None, None, "", ""),
    "memory": (lambda: mgplan.plan("llama3-8b", 16, max_memory=80), PLAN + " --max-memory 80", "max_memory", 80, "has no unit", "80GiB"),
    "batch": (lambda: mgplan.plan("llama3-8b", 16, micro_batch=7), PLAN + " --micro-batch 7", "global_batch", "1024", "is no multiple",
              "use a micro-batch of"),
    "file": (lambda: mgplan.plan("llama3-8b", 16, save_plan="/no/such/folder/x"), PLAN + " --save-plan /no/such/folder/x", "save_plan",
             "/no/such/folder/x", "cannot be written", "name a file"),
    "order": (lambda: mgplan.plan("llama3-8b", 16, order="tp-xx"), PLAN + " --order tp-xx", "order", "tp-xx", "unknown axis 'xx'",
              "use tp, cp, ep, dp and pp"),
    "layout": (lambda: mgplan.simulate("llama3-8b", 16, tp=3), "simulate --world 16 --model llama3-8b --tp 3", "tp", 3, "does not divide",
               "use 1, 2, 4, 8 or 16"),
    "kind": (lambda: mgplan.simulate("llama3-8b", 16, kind="zb"), "simulate --world 16 --model llama3-8b --kind zb", "kind", "zb",
             "is not known", "zb-h1"),
    "plan file": (lambda: mgplan.simulate("none.json"), "simulate none.json", None, None, "is not there", "check the path"),
    "no plan": (lambda: mgplan.simulate(), "simulate", "world", None, "is missing", "give"),
    "to": (lambda: mgplan.export({}, to="nemo"), "", "to", "nemo", "is not known", "use megatron-args"),
    "export": (lambda: mgplan.export(3), "", "plan", 3, "is a int", "give a plan"),
    "groups": (lambda: mgplan.groups(16, tp=32), "groups --world 16 --tp 32", None, None, "", "use"),
    "microbatches": (lambda: mgplan.schedule(4, 0), "schedule --pp 4 --microbatches 0", "microbatches", 0, "is out of range", "from 1 to"),
    "bucket": (lambda: mgplan.buffers("llama3-8b", 4, bucket_size="x"), "buffers --model llama3-8b --dp 4 --bucket-size x", "bucket_size",
               "x", "is no number", "40M"),
    "parameter": (lambda: mgplan.buffers(params=[{"name": "w", "shape": [4], "dtype": "int4"}], dp=2), "", "dtype", "int4", "is not known",
                  "use bf16"),
    "flags": (lambda: mgplan.check({"num-layers": "many"}, 16), "", None, None, "", ""),
    "flags of no kind": (lambda: mgplan.check(7.5, 16), "check --megatron-args 7.5 --world 16", None, None, "is not there", "check the path"),
    "config": (lambda: mgplan.plan(LLAMA | {"hidden_size": "big"}, 8), "", "hidden_size", "big", "is not a whole number", "give one from"),
    "empty config": (lambda: mgplan.plan({}, 8), "", "model", None, "is no model", ""),
    "endless config": (lambda: mgplan.plan(loop(), 8), "", "model", None, "cannot be written as JSON", "give a dict"),
    "odd key": (lambda: mgplan.plan({(1, 2): 3}, 8), "", "model", None, "cannot be written as JSON", "give a dict"),
    "broken config": (lambda: mgplan.plan(Broken(), 8), "", "model", None, "has a to_dict() that fails", "give a dict"),
    "object": (lambda: mgplan.plan("llama3-8b", 16, tp=OBJECT), "", "tp", OBJECT, "is a object", "give a number"),
    "None as model": (lambda: mgplan.plan(None, 16), "", "model", None, "is a NoneType", "give a number, a text"),
    "bytes": (lambda: mgplan.plan(b"llama3-8b", 16), "", "model", b"llama3-8b", "is a bytes", "give"),
    "zero byte": (lambda: mgplan.plan("llama\0", 16), "", "model", "llama\0", "holds a zero byte", "give"),
    "half a character": (lambda: mgplan.plan("llama\ud800", 16), "", "model", "llama\ud800", "holds half a character", "UTF-8"),
    "nested list": (lambda: mgplan.plan("llama3-8b", 16, tp=[[1]]), "", "tp", [1], "is a list", "give"),
    "format": (lambda: mgplan.plan("llama3-8b", 16, format="csv"), "", "format", "csv", "is no pin", "to_json()"),
    "flag": (lambda: mgplan.plan("llama3-8b", 16, strict="yes"), "", "strict", "yes", "is neither True nor False", "use one"),
    "digits": (lambda: mgplan.plan("llama3-8b", 10**5000), "", "world", None, "is out of range", "smaller"),
    "not a number": (lambda: mgplan.simulate("llama3-8b", 8, jitter=float("nan")), "simulate --model llama3-8b --world 8 --jitter nan",
                     "jitter", None, "is no number", "write one"),
    "two models": (lambda: mgplan.simulate("llama3-8b", 8, megatron_args="--num-layers 2"), "", "model", "llama3-8b", "both name a model",
                   "give one of them"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.filterwarnings("error")
def test_is_refused(command, name):
    call, words, field, value, rule, way_out = WRONG[name]
    with pytest.raises(mgplan.InputError) as raised:
        call()
    error = raised.value
    if words:
        assert [problem.text for problem in error.problems] == command(*words.split(" ")).problems()
    assert str(error) == "\n".join(problem.text for problem in error.problems)
    assert isinstance(error, ValueError)
    assert error.field == (field or error.field)
    if value is not None:
        assert error.value == value
    assert rule in error.rule or rule in str(error)
    assert way_out in error.way_out
    assert error.way_out, "no way out"
    assert len(error.problems[0].text) < 600


def test_every_problem_is_told():
    with pytest.raises(mgplan.InputError) as raised:
        mgplan.plan("llama3-8b", 16, tp="x", pp=0, precision="int8")
    assert [(problem.field, problem.value) for problem in raised.value.problems] == [("pp", 0), ("precision", "int8"), ("tp", "x")]
    copy = pickle.loads(pickle.dumps(raised.value))
    assert copy.problems == raised.value.problems and str(copy) == str(raised.value)


def test_what_changes_nothing_is_warned_about(command):
    said = command("plan", "--world", 8, "--model", "llama3-8b", "--ep", 2, "--top", 1)
    with pytest.warns(mgplan.InputWarning) as warned:
        ranking = mgplan.plan("llama3-8b", 8, ep=2, top=1)
    assert [str(each.message) for each in warned] == list(ranking.notes) == [said.err.removeprefix("mgplan: ").rstrip("\n")]
    assert warned[0].filename == __file__


def test_a_refused_call_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = mgplan.plan("llama3-8b", 16, top=2).to_dict()["plans"]
    for call, *_ in WRONG.values():
        with pytest.raises(mgplan.InputError):
            call()
    assert mgplan.plan("llama3-8b", 16, top=2).to_dict()["plans"] == before
    assert list(tmp_path.iterdir()) == []


ODD = [None, "", " ", "x" * 100000, "--help", "-1", -1, 0, 2**64, 1e400, float("nan"), True, [], [[]], {}, {"a": {}}, OBJECT, Broken(), b"", "\0",
       "\ud800", (), range(3), lambda: 1, type, ["--help"], "a=b", "1,2", Exception(), 3 + 4j, "../..", "/dev/null"]


@pytest.mark.filterwarnings("ignore::mgplan.InputWarning")
def test_whatever_is_given_nothing_but_answers_and_input_errors():
    """Each odd value in each place: an answer, or an InputError."""
    calls = {
        "model": lambda odd: mgplan.simulate(odd, 8),
        "world": lambda odd: mgplan.simulate("llama3-8b", odd),
        "cluster": lambda odd: mgplan.simulate("llama3-8b", 8, odd),
        "figure": lambda odd: mgplan.simulate("llama3-8b", 8, {"preset": "dgx-h100", "memory_gib": odd}),
        "preset": lambda odd: mgplan.simulate("llama3-8b", 8, {"preset": odd}),
        "tp": lambda odd: mgplan.simulate("llama3-8b", 8, tp=odd),
        "routing": lambda odd: mgplan.simulate("mixtral-8x7b", 8, ep=8, routing_skew=odd),
        "flag": lambda odd: mgplan.simulate("llama3-8b", 8, per_rank=odd),
        "choice": lambda odd: mgplan.simulate("llama3-8b", 8, recompute=odd),
        "megatron": lambda odd: mgplan.check(odd, 8, top=0),
        "megatron flag": lambda odd: mgplan.check({"num-layers": odd}, 8, top=0),
        "plan": lambda odd: mgplan.export(odd),
        "a plan": lambda odd: mgplan.simulate(odd),
        "field": lambda odd: mgplan.simulate(LLAMA | {"hidden_size": odd}, 8),
        "name": lambda odd: mgplan.simulate(LLAMA | {"name": odd, "_name_or_path": odd}, 8),
        "params": lambda odd: mgplan.buffers(params=odd, dp=2),
        "pin's name": lambda odd: mgplan.groups(8, **{str(odd) if not isinstance(odd, Broken) else "x": 1}),
    }
    refused = 0
    for (place, call), odd in itertools.product(calls.items(), ODD):
        try:
            call(odd)
        except mgplan.InputError as error:
            refused += 1
            assert error.problems and str(error), place
        except Exception as error:
            pytest.fail(f"{place} = {odd!r:.60}: {error!r:.300}")
    assert refused > len(calls) * len(ODD) // 2


def test_threads_do_not_meet():
    """Refused and answered calls at once, each with its own end."""
    right = mgplan.simulate("llama3-8b", 8, tp=2).predicted
    failures = []

    def work(wrong):
        for _ in range(20):
            try:
                if mgplan.simulate("llama3-8b", 8, tp=3 if wrong else 2).predicted != right or wrong:
                    failures.append("answered")
            except mgplan.InputError as error:
                if not wrong or error.field != "tp":
                    failures.append(str(error))

    threads = [threading.Thread(target=work, args=(bool(i % 2),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_answers_are_read_only():
    answer = mgplan.groups(8, tp=2)
    with pytest.raises(TypeError):
        answer["groups"] = {}
    answer.to_dict()["groups"].clear()
    assert json.loads(answer.to_json())["groups"] == answer["groups"] != {}
