"""What the answers are like: sequences, tables, plans to go on with."""

import json
from html.parser import HTMLParser

import pytest

import mgplan
from conftest import LLAMA


@pytest.fixture(scope="module")
def ranking():
    return mgplan.plan("llama3-8b", 16)


def test_a_ranking_is_a_sequence_of_plans(ranking):
    assert len(ranking) == 10
    assert [plan.rank for plan in ranking] == list(range(1, 11))
    assert ranking[0] is ranking.best and ranking[-1].rank == 10 and [plan.rank for plan in ranking[2:4]] == [3, 4]
    seconds = [plan.iteration_seconds for plan in ranking]
    assert seconds == sorted(seconds)
    with pytest.raises(IndexError):
        ranking[10]
    best = ranking.best
    assert best.fits and best.peak_bytes == best.predicted["memory"]["peak_bytes"] and isinstance(best.peak_bytes, int)
    assert best.tokens_per_second_per_gpu == pytest.approx(1024 * 4096 / 16 / best.iteration_seconds)
    assert "cluster dgx-h100" in ranking.assumed and ranking.search["legal"] > 1000 and ranking.nearest == []


def test_pins_hold():
    for plan in mgplan.plan("llama3-8b", 16, tp=2, pp=(1, 2), recompute="none", sequence_parallel=False):
        assert plan.layout["tp"] == 2 and plan.layout["pp"] in (1, 2) and plan.layout["recompute"] == "none"
        assert plan.layout["sequence_parallel"] is False


def test_nothing_fits():
    ranking = mgplan.plan("llama3-70b", 2)
    assert len(ranking) == 0 and ranking.best is None and not ranking
    assert ranking.nearest[0]["missing_bytes"] > 0
    assert "nothing fits" in repr(ranking) and "Nothing fits" in ranking._repr_html_()


def test_a_table_for_pandas(ranking):
    frame = ranking.to_pandas()
    assert len(frame) == 10 and list(frame["rank"]) == list(range(1, 11))
    assert list(frame["iteration_seconds"]) == [plan.iteration_seconds for plan in ranking]  # to the bit
    assert list(frame["memory.peak_bytes"]) == [plan.peak_bytes for plan in ranking]
    assert frame["memory.peak_bytes"].dtype.kind == "i" and frame["tp"].dtype.kind == "i"
    assert list(frame["exposed_communication_seconds.dp"])[0] == ranking[0].predicted["exposed_communication_seconds"]["dp"]
    assert len(mgplan.plan("llama3-70b", 2).to_pandas()) == 0


def test_a_sweep_is_a_frame_of_recommended_plans():
    frame = mgplan.sweep("llama3-8b", over={"world": [1, 8], "seq": ["4k", "8k"]}, global_batch=64, precision="bf16")
    assert list(zip(frame["world"], frame["seq"])) == [(1, "4k"), (1, "8k"), (8, "4k"), (8, "8k")]
    assert list(frame["fits"]) == [False, False, True, True]
    best = mgplan.plan("llama3-8b", 8, seq="8k", global_batch=64, precision="bf16").recommended
    last = frame.iloc[-1]
    assert (last["iteration_seconds"], last["memory.peak_bytes"], last["tp"]) == (best.iteration_seconds, best.peak_bytes, best.layout["tp"])
    assert last["layout"] in repr(best)
    with pytest.raises(mgplan.InputError) as raised:
        mgplan.sweep("llama3-8b", 8, over={"tp": [2, 3]})
    assert raised.value.__notes__ == ["in the sweep at tp = 3"]


def test_a_plot_has_a_point_for_each_plan(ranking):
    import matplotlib

    matplotlib.use("Agg")
    ax = ranking.plot()
    points = ax.collections[0].get_offsets()
    assert [tuple(point) for point in points] == [(plan.peak_bytes / 2**30, plan.iteration_seconds) for plan in ranking]
    assert [text.get_text() for text in ax.texts] == [str(plan.rank) for plan in ranking]
    assert "GiB" in ax.get_xlabel() and "seconds" in ax.get_ylabel() and "llama3-8b" in ax.get_title()
    assert ranking.plot(ax) is ax
    assert len(mgplan.plan("llama3-70b", 2).plot().texts) == 0


class Table(HTMLParser):
    def __init__(self):
        super().__init__()
        self.rows, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)


def test_a_table_for_notebooks(ranking):
    table = Table()
    table.feed(ranking._repr_html_())
    assert table.open == [] and len(table.rows) == 11
    assert table.rows[1][0] == "1" and f"{ranking[0].iteration_seconds:.3f} s" in table.rows[1]
    odd = mgplan.plan(LLAMA | {"name": "<script>&"}, 8, top=1)
    assert "<script>" not in odd._repr_html_() and "&lt;script&gt;&amp;" in odd._repr_html_()


def test_text(ranking):
    lines = repr(ranking).splitlines()
    assert lines[0] == "llama3-8b on 16 GPUs (dgx-h100), batch of 1,024 x 4,096 tokens" and len(lines) == 12
    plain = mgplan.plan("llama3-8b", 16, search="plain", cp=2)
    layout = plain[0].layout
    assert f"cp2 dp{layout['dp']} pp{layout['pp']} vpp{layout['vpp']} mbs{layout['micro_batch']} {layout['cp_comm_type']}" in repr(plain)
    assert repr(ranking[0]).startswith("<mgplan.Plan 1: tp2 dp8 mbs4, ")
    assert "mbs1 mlp,layernorm," in repr(mgplan.simulate("llama3-8b", 8, recompute="selective", recompute_modules="mlp,layernorm"))


def test_a_config_with_to_dict_is_a_model():
    class LlamaConfig:  # as in transformers, whose to_dict() holds much that is not needed
        def to_dict(self):
            return LLAMA | {"_name_or_path": "someone/my-llama", "transformers_version": "4.57.0", "torch_dtype": object(), "use_cache": True}

    of_config = mgplan.plan(LlamaConfig(), 8, seq=4096, global_batch=256)
    of_dict = mgplan.plan(LLAMA, 8, seq=4096, global_batch=256)
    assert of_config.answer["model"]["name"] == "my-llama" and of_dict.answer["model"]["name"] == "llama"
    assert [plan.to_dict() for plan in of_config] == [plan.to_dict() for plan in of_dict]
    assert of_dict.answer["model"]["parameters"] == 8030261248  # Llama 3 8B


def test_mgplans_own_model_is_a_model(command, ranking):
    own = json.loads(command("models", "show", "llama3-8b", "--format", "json").out)
    assert mgplan.plan(own, 16).answer["plans"] == ranking.answer["plans"]
    assert mgplan.plan(ranking[0].plan_file()["model"], 16).answer["plans"] == ranking.answer["plans"]


def test_a_plan_names_its_model(ranking):
    assert mgplan.plan(ranking.best, 16).answer["plans"] == ranking.answer["plans"]
    with pytest.raises(mgplan.InputError, match="--world cannot be combined with a PLAN"):
        mgplan.simulate(ranking.best, 16)


def test_a_legal_check_says_what_would_be_better_and_an_illegal_one_why():
    flags = {"num-layers": 32, "hidden-size": 4096, "num-attention-heads": 32, "seq-length": 4096, "max-position-embeddings": 8192,
             "micro-batch-size": 1, "global-batch-size": 128, "vocab-size": 32000, "swiglu": True, "bf16": True}
    check = mgplan.check(flags | {"tensor-model-parallel-size": 8}, 16)
    assert check.legal and check.fits and check.runs
    assert check.better[0].gain > 0.01 and check.better[0].iteration_seconds < check.asked.iteration_seconds
    assert mgplan.export(check.better[0]).arguments
    illegal = mgplan.check(flags | {"tensor-model-parallel-size": 3}, 16, top=2)
    assert (illegal.legal, illegal.runs, illegal.asked) == (False, False, None)
    assert len(illegal.better) == 2 and illegal.better[0].fits and illegal.better[0].gain is None
    assert mgplan.check(flags | {"tensor-model-parallel-size": 3}, 16, top=0).better == []
    assert any("tp = 3 does not divide" in problem for problem in illegal.problems) and "not legal" in repr(illegal)


def test_an_export_is_words_and_text():
    export = mgplan.export(mgplan.simulate("llama3-8b", 16, tp=4, pp=2))
    at = export.arguments.index("--tensor-model-parallel-size")
    assert export.arguments[at + 1] == "4" and "--tensor-model-parallel-size 4" in str(export)


def test_schedules_and_groups_are_mappings():
    schedule = mgplan.schedule(2, 4)
    assert schedule["ranks"][0]["order"] == [1, 1, -1, 1, -1, 1, -1, -1] and len(schedule) == len(list(schedule))
    assert mgplan.groups(8, tp=2)["groups"]["tp"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
