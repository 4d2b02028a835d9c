"""Plans and predicts how to spread the training of a large language model over N GPUs.

    import mgplan
    ranking = mgplan.plan("llama3-8b", 16)
    print(ranking)

Everything is what the command line computes, to the bit. Pins are its options with underscores: tp, cp, ep, etp, pp, vpp, micro_batch,
recompute, global_batch, seq, max_memory, precision, … (``mgplan plan --help`` lists them, and so do the stubs). Bytes are integers, times
are seconds, ranks are global. What cannot be used raises InputError.
"""

from __future__ import annotations

import importlib
import itertools
import os
import warnings
from typing import Any, Mapping

from . import _mgplan, _words
from ._errors import InputError, InputWarning, Problem, refusal
from ._results import Answer, Better, Check, Export, Plan, Prediction, Ranking

__version__: str = _mgplan.version
__all__ = ["Answer", "Better", "Check", "Export", "InputError", "InputWarning", "Plan", "Prediction", "Problem", "Ranking", "buffers", "check",
           "clusters", "diff", "export", "graphs", "groups", "least", "models", "plan", "schedule", "side_by_side", "simulate", "split",
           "sweep"]


def _ask(command: str, words: list[str], texts: _words.Texts, given: Mapping[str, Any],
         warn: bool = True) -> tuple[str, list[str], list[str]]:
    """The command's result, its lines about the input, which are warned about, and its plans."""
    said = _mgplan.answer(command, words, texts)
    if said.problems:
        raise InputError.of(said.problems, given)
    notes = [line.removeprefix("mgplan: ") for line in said.err.splitlines()]
    notes = [note for note in notes if not note.startswith("planning ")]  # how far a study is
    for note in notes if warn else []:
        warnings.warn(note, InputWarning, stacklevel=4)
    return said.out, notes, said.plans


def _answer(command: str, words: list[str], texts: _words.Texts, given: Mapping[str, Any]) -> Answer:
    return Answer(*_ask(command, [*words, "--format=json"], texts, given))


def _job(pins: dict[str, Any], cluster: Any, routing_skew: Any) -> tuple[list[str], _words.Texts]:
    words = _words.pin_words(pins)
    texts: _words.Texts = {}
    _words.add_cluster(words, texts, cluster)
    _words.add_routing(words, texts, routing_skew)
    return words, texts


def plan(model: Any, world: Any = None, cluster: Any = None, *, routing_skew: Any = None, **pins: Any) -> Ranking:
    """Ranks the layouts of a model on `world` GPUs: all legal ones are priced, and those that fit in memory come fastest first.

    model: a preset ("llama3-8b"), a path (config.json or its folder, Megatron-LM flags, mgplan's JSON), a dict of either JSON, or an object
    with to_dict() such as a transformers config; of a Plan, its model. cluster: a preset, also with changed figures ("dgx-h100,gpus_per_node=4" or
    {"preset": "dgx-h100", "gpus_per_node": 4}), a path, or a dict; without it dgx-h100. routing_skew: a word, a path, or counts for each
    expert. pins: numbers, texts or lists restrict the search: tp=8, pp=[1, 2, 4], recompute="none", global_batch=1024 (sequences),
    seq=4096 (tokens), max_memory="70GiB" (or bytes), top=20 (plans).

    Several worlds, or tokens="15T", add how the model scales: answer["scaling"]. Nothing fits: an empty ranking whose ``nearest`` says
    what is missing. Raises InputError for what cannot be used, among it layouts none of which is legal. Other threads run meanwhile, and
    Ctrl-C ends a search within about a second.
    """
    words, texts = _job(pins | {"world": world}, cluster, routing_skew)
    _words.add_model(words, texts, model)
    return Ranking(_answer("plan", words, texts, pins | {"world": world, "model": model, "cluster": cluster}))


def simulate(model: Any = None, world: Any = None, cluster: Any = None, *, megatron_args: Any = None, routing_skew: Any = None,
             **pins: Any) -> Prediction:
    """Predicts memory (bytes) and time (seconds) of one layout.

    Of a model with `world` and pins (tp=4, pp=2, micro_batch=1; what is not pinned is 1 or off); of a plan in place of the model: a
    Plan, a plan file's path or contents, without a world; or of Megatron-LM flags (`megatron_args`, see check). ``fits`` says whether it
    fits; ``predicted`` holds all figures. per_rank=True adds answer["ranks"], memory_snapshot="job.pickle" (which
    torch.cuda._memory_viz and pytorch.org/memory_viz read) answer["memory_snapshot"] with its peaks.
    """
    words, texts = _job(pins | {"world": world}, cluster, routing_skew)
    if megatron_args is not None:
        _words.add_megatron(words, texts, megatron_args)
    if model is not None:
        if isinstance(model, Plan) or (world is None and _is_plan(model)):
            _add_plan(words, texts, model)
        else:
            _words.add_model(words, texts, model)
    given = pins | {"world": world, "model": model, "cluster": cluster, "megatron_args": megatron_args}
    return Prediction(_answer("simulate", words, texts, given))


def check(megatron_args: Any, world: Any = None, cluster: Any = None, *, routing_skew: Any = None, **pins: Any) -> Check:
    """Judges a Megatron-LM command before it is started: is it legal, does it fit, how fast is it, and what would be better?

    megatron_args: a path (flags, a shell script with an argument array, YAML); the words of a command (sys.argv[1:]); a text of flags; or
    a dict ({"tensor-model-parallel-size": 8, "swiglu": True}). world: GPUs, where the command does not state them. pins: top=0 looks for nothing better, strict=True refuses commands of which
    a flag is not computed. A command that is not legal is answered (``legal`` is False); one that cannot be read raises InputError.
    """
    words, texts = _job(pins | {"world": world}, cluster, routing_skew)
    _words.add_megatron(words, texts, megatron_args)
    return Check(_answer("check", words, texts, pins | {"world": world, "cluster": cluster, "megatron_args": megatron_args}))


def export(plan: Any, to: str = "megatron-args") -> Export:
    """Writes a plan (a Plan, a plan file's path or contents) in the words of the program that is to train it: "megatron-args" (a shell file
    with an array), "megatron-yaml", or "mgplan" (a plan file)."""
    words = [f"--to={_words.scalar_word('to', to)}"]
    texts: _words.Texts = {}
    _add_plan(words, texts, plan)
    given = {"to": to, "plan": plan}
    answer = _answer("export", words, texts, given)
    return Export(_ask("export", words, texts, given, warn=False)[0], answer)


def sweep(model: Any, world: Any = None, cluster: Any = None, *, over: Mapping[str, Any], **pins: Any) -> Any:
    """Ranks layouts for every combination of values, {"seq": ["4k", "8k"], "world": [64, 128]}, and gives a pandas.DataFrame with a row
    for each: the values as given, whether a layout fits, and the recommended plan: its layout in words, and its sizes and figures as
    Ranking.to_pandas() has them, but for names that are swept.

    `over` takes every argument and pin of plan(). Needs pandas, which nothing else here does. A combination that cannot be used raises its
    InputError with a note that names it.
    """
    pandas = importlib.import_module("pandas")
    if not isinstance(over, Mapping):
        raise refusal("over", over, "is no dict", 'give one, such as {"seq": ["4k", "8k"]}')
    for name, values in over.items():
        if isinstance(values, (str, bytes)) or not isinstance(values, (list, tuple, range)) or len(values) == 0:
            raise refusal(f"over[{name!r}]", values, "is no list of values", 'give one, such as {"seq": ["4k", "8k"]}')
    rows = []
    for values in itertools.product(*over.values()):
        point = dict(zip(over, values, strict=True))
        try:
            ranking = plan(**({"model": model, "world": world, "cluster": cluster} | pins | point))
        except InputError as error:
            error.add_note(f"in the sweep at {', '.join(f'{name} = {value}' for name, value in point.items())}")
            raise
        row = point | {"fits": len(ranking) > 0}
        rows.append(row | {name: value for name, value in ranking._recommended_row().items() if name not in row})
    return pandas.DataFrame(rows)


def side_by_side(model: Any, on: Any, *, routing_skew: Any = None, **pins: Any) -> Answer:
    """The recommended plan of a model on each of several clusters: ``["options"]`` has a dict for each.

    on: texts as --on takes them, "512:dgx-h100", "128:gb300-nvl72,precision=mxfp8"; after the cluster its keys, precision, global_batch,
    seq and price. pins hold for all: tokens="4T" adds days, GPU-hours and, with price, cost.
    """
    if isinstance(on, (str, bytes)) or not isinstance(on, (list, tuple)):
        raise refusal("on", on, "is no list", 'give one, such as ["512:dgx-h100", "128:gb300-nvl72"]')
    words = _words.pin_words(pins) + [f"--on={_words.scalar_word('on', each)}" for each in on]
    texts: _words.Texts = {}
    _words.add_routing(words, texts, routing_skew)
    _words.add_model(words, texts, model)
    return _answer("side-by-side", words, texts, pins | {"model": model, "on": on})


def least(model: Any, cluster: Any = None, *, routing_skew: Any = None, **pins: Any) -> Answer:
    """The least number of GPUs on which a layout of the model fits, and how fast it is there: ``["gpus"]`` (None: nothing fits),
    ``["plan"]``, ``["tokens_per_second_per_gpu"]``; ``["fixes"]`` and ``["without"]`` have the number with one change each.

    pins restrict the search as those of plan() do; up_to=1024 is the largest number that is tried.
    """
    words, texts = _job(pins, cluster, routing_skew)
    _words.add_model(words, texts, model)
    return _answer("least", words, texts, pins | {"model": model, "cluster": cluster})


def diff(a: Any, b: Any) -> Answer:
    """What two plans (each a Plan, a plan file's path or contents) state differently, and what that does to time and memory."""
    words: list[str] = []
    texts: _words.Texts = {}
    for number, (name, each) in enumerate({"a": a, "b": b}.items(), start=1):
        if each is None:
            raise refusal(name, each, "is no plan", "give a plan of a ranking, a plan file's path, or its contents")
        _add_plan(words, texts, each, f"PLAN {number}", f"plan {name}")
    return _answer("diff", words, texts, {"a": a, "b": b})


def models(name: Any = None) -> Any:
    """The model presets with their sizes, a dict each; of a name or a path, that one model as an Answer."""
    return _listed("models", name)


def clusters(name: Any = None) -> Any:
    """The cluster presets, a dict each; of a name or a path, that one cluster with the source of every figure as an Answer."""
    return _listed("clusters", name)


def _listed(command: str, name: Any) -> Any:
    if name is None:
        return _answer(command, [], {}, {}).to_dict()[command]
    word = _words.scalar_word("name", name)
    if word.startswith("-"):
        raise refusal("name", name, "is no name", "give that of a preset, or a path (./ before a dash)")
    return _answer(command, ["show", word], {}, {"name": name})


def _of_plan(command: str, plan: Any, pins: Mapping[str, Any], model: Any = None, **texts: tuple[str, str]) -> Answer:
    """A command that takes a plan, or pins and perhaps a model, in its place. `texts` stand in place of files."""
    words = _words.pin_words(pins)
    if plan is not None:
        _add_plan(words, texts, plan)
    if model is not None:
        _words.add_model(words, texts, model)
    return _answer(command, words, texts, {**pins, "model": model, "plan": plan})


def schedule(pp: Any = None, microbatches: Any = None, *, plan: Any = None, **pins: Any) -> Answer:
    """The pipeline schedule of every rank: order, warm-up, live microbatches. Of `plan` (a Plan, a plan file's path or contents), or of
    pins: vpp, group_size, kind ("1f1b", "zb-h1", …). forward_only=True leaves the backwards out."""
    return _of_plan("schedule", plan, pins | {"pp": pp, "microbatches": microbatches})


def groups(world: Any = None, *, plan: Any = None, **pins: Any) -> Answer:
    """Which global ranks form each communication group. Of `plan` (a Plan, a plan file's path or contents), or of pins: tp, cp, ep, etp,
    dp, pp, order, distributed_optimizer_instances. hybrid_context_parallel=True adds the groups of dynamic context parallelism."""
    return _of_plan("groups", plan, pins | {"world": world})


def split(model: Any = None, *, plan: Any = None, **pins: Any) -> Answer:
    """Which layers each pipeline stage and chunk holds. Of `plan` (a Plan, a plan file's path or contents), or of a model, or layers=N, with
    pins: pp, vpp, first_stage_layers, pipeline_layout, …"""
    return _of_plan("split", plan, pins, model)


def graphs(model: Any = None, *, plan: Any = None, **pins: Any) -> Answer:
    """CUDA graphs of each pipeline rank and the buffers that they need. Of `plan` (a Plan, a plan file's path or contents), or of a model
    with pins: pp, vpp, microbatches, tp, cuda_graphs, …"""
    return _of_plan("graphs", plan, pins, model)


def buffers(model: Any = None, dp: Any = None, *, params: Any = None, plan: Any = None, **pins: Any) -> Answer:
    """Parameter and gradient buffers, their buckets and, with shards=True, every rank's share; positions count elements.

    Of `plan` (a Plan, a plan file's path or contents) with pp_rank and chunk; or of a model; or of `params`: a path, or a list of
    {"name", "shape", "dtype"} in module order. dp: ranks that share the buffers (dp·cp). pins: tp, pp, vpp, ep, etp, edp, pp_rank, chunk,
    dtype, bucket_size (elements, or "none"), no_distributed_optimizer=True, …
    """
    pins |= {"dp": dp}
    if isinstance(params, (list, tuple)):
        return _of_plan("buffers", plan, pins, model, params=("params", _words.json_text("params", params)))
    return _of_plan("buffers", plan, pins | {"params": params}, model)


def _is_plan(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "layout" in value and "model" in value
    return isinstance(value, os.PathLike) or (isinstance(value, str) and (value.endswith(".json") or os.path.isfile(value)))


def _add_plan(words: list[str], texts: _words.Texts, plan: Any, place: str = "PLAN", name: str = "plan") -> None:
    if isinstance(plan, Plan):
        texts[place] = (name, plan._plan_file)
    elif isinstance(plan, Mapping):
        texts[place] = (name, _words.json_text("plan", dict(plan)))
    elif isinstance(plan, (str, os.PathLike)):
        path = _words.scalar_word("plan", plan)
        if not path or path.startswith("-"):
            raise refusal("plan", plan, "is no path", "give a plan, or the path of a plan file (./ before a dash)")
        words.append(path)
    else:
        raise refusal("plan", plan, f"is a {type(plan).__name__}", "give a plan of a ranking, a plan file's path, or its contents")
