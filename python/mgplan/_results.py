"""What the functions answer with. Every number is the one that the command line prints as JSON, to the bit."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any, Iterable, Iterator, Mapping, Sequence, overload


class Answer(Mapping[str, Any]):
    """A command's JSON as a read-only mapping: bytes are integers, times seconds, ranks global."""

    def __init__(self, text: str, notes: Sequence[str] = (), plans: Sequence[str] = ()):
        self._text = text
        self._data: dict[str, Any] = json.loads(text)
        self._plans = list(plans)
        self.notes: tuple[str, ...] = tuple(notes)

    def to_json(self) -> str:
        """The JSON text, as ``--format json`` prints it."""
        return self._text

    def to_dict(self) -> dict[str, Any]:
        """A copy of the whole answer that may be changed."""
        data: dict[str, Any] = json.loads(self._text)
        return data

    def __getitem__(self, key: str) -> Any:
        return self._data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __repr__(self) -> str:
        return f"<mgplan.{type(self).__name__}: {', '.join(self._data)}>"


class Plan:
    """One layout and what it is predicted to cost."""

    def __init__(self, entry: Mapping[str, Any], plan_file: str, rank: int | None = None):
        self._entry = dict(entry)
        self._plan_file = plan_file
        self.rank = rank
        self.layout: dict[str, Any] = entry["layout"]
        self.predicted: dict[str, Any] = entry["predicted"]

    @property
    def iteration_seconds(self) -> float:
        """Seconds of one step."""
        return float(self.predicted["iteration_seconds"])

    @property
    def adverse_seconds(self) -> float:
        """Seconds of one step in adverse conditions (docs/how-sure.md)."""
        return float(self.predicted["adverse_seconds"])

    @property
    def tokens_per_second_per_gpu(self) -> float:
        return float(self.predicted["tokens_per_second_per_gpu"])

    @property
    def mfu(self) -> float:
        """Model FLOPs over the dense peak of the plan's precision: 0.5 is half."""
        return float(self.predicted["mfu"])

    @property
    def peak_bytes(self) -> int:
        """Bytes on the fullest rank at its fullest moment."""
        return int(self.predicted["memory"]["peak_bytes"])

    @property
    def fits(self) -> bool:
        """Whether the fullest rank stays within ``predicted["memory"]["limit_bytes"]``."""
        return bool(self.predicted["memory"]["missing_bytes"] == 0)

    def to_dict(self) -> dict[str, Any]:
        """{"layout": …, "predicted": …}, a copy."""
        data: dict[str, Any] = json.loads(json.dumps(self._entry))
        return data

    def plan_file(self) -> dict[str, Any]:
        """What a plan file holds: model, cluster, batch, training options and layout."""
        data: dict[str, Any] = json.loads(self._plan_file)
        return data

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan file, which ``mgplan run`` trains with."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._plan_file)

    def __repr__(self) -> str:
        rank = "" if self.rank is None else f"{self.rank}: "
        return f"<mgplan.Plan {rank}{layout_text(self.layout)}, {cells_of(self)['time'].strip()} a step, {cells_of(self)['memory']}>"


def layout_text(layout: Mapping[str, Any]) -> str:
    """The sizes above 1 and what else was chosen: "tp2 dp4 pp2 vpp4 mbs1 full", "cp2 dp8 mbs2 p2p"."""
    words = [f"{axis}{layout[axis]}" for axis in ("tp", "cp", "ep", "dp", "pp", "vpp") if layout[axis] > 1]
    words.append(f"mbs{layout['micro_batch']}")
    if layout["cp"] > 1:
        words.append(layout["cp_comm_type"])
    if layout["recompute"] != "none":
        modules = layout.get("recompute_modules") or []
        words.append(",".join(modules) if layout["recompute"] == "selective" and modules else layout["recompute"])
    return " ".join(words)


def cells_of(plan: Plan) -> dict[str, str]:
    """A row of a table for people."""
    memory = plan.predicted["memory"]
    return {
        "layout": layout_text(plan.layout),
        "time": f"{plan.iteration_seconds:.3f} s",
        "tokens/s/GPU": f"{plan.tokens_per_second_per_gpu:,.0f}",
        "MFU": f"{100 * plan.mfu:.1f} %",
        "memory": f"{memory['peak_bytes'] / 2**30:.1f} of {memory['limit_bytes'] / 2**30:.1f} GiB",
    }


def flat(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields as columns: "memory.peak_bytes"; lists as they are."""
    row: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, Mapping):
            row |= flat(value, f"{prefix}{key}.")
        else:
            row[prefix + key] = value
    return row


def _cells(texts: Iterable[str], tag: str) -> str:
    import html  # only here: importing mgplan is to take no time

    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)


class Ranking(Sequence[Plan]):
    """The plans that fit, fastest first (or smallest: objective="memory"). Empty where nothing fits: then see ``nearest``.

    ``answer`` holds the whole answer: the search's counts, what was rejected, model, cluster, batch.
    """

    def __init__(self, answer: Answer):
        self.answer = answer
        self._list = [Plan(entry, file, entry["rank"]) for entry, file in zip(answer["plans"], answer._plans, strict=True)]

    @overload
    def __getitem__(self, index: int) -> Plan: ...
    @overload
    def __getitem__(self, index: slice) -> list[Plan]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._list[index]

    def __len__(self) -> int:
        return len(self._list)

    @property
    def best(self) -> Plan | None:
        """The first plan; None where nothing fits."""
        return self._list[0] if self._list else None

    @property
    def recommended(self) -> Plan | None:
        """The steadiest plan within 3 % of the fastest, which --save-plan saves; None where nothing fits."""
        return next((plan for plan in self if plan.to_dict()["recommended"]), None)

    @property
    def assumed(self) -> list[str]:
        """One sentence for every value that was not given."""
        return list(self.answer["assumed"])

    @property
    def notes(self) -> tuple[str, ...]:
        """What the command line says on stderr: pins without effect, flags that are not computed."""
        return self.answer.notes

    @property
    def search(self) -> dict[str, Any]:
        """Counts of candidates, legal, evaluated, feasible and rejected layouts; its seconds are wall time of this search."""
        return dict(self.answer["search"])

    @property
    def nearest(self) -> list[dict[str, Any]]:
        """Where nothing fits: the nearest misses with the bytes they miss and what would make each fit."""
        return list(self.answer.get("nearest", []))

    def to_json(self) -> str:
        """The JSON text, as ``--format json`` prints it."""
        return self.answer.to_json()

    def to_dict(self) -> dict[str, Any]:
        """A copy of the whole answer that may be changed."""
        return self.answer.to_dict()

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row for each plan: its rank, the layout's fields, and the predicted ones, nested ones with dots
        ("memory.peak_bytes"). Needs pandas, which nothing else here does."""
        pandas = importlib.import_module("pandas")
        return pandas.DataFrame([{"rank": plan.rank} | flat(plan.layout) | flat(plan.predicted) for plan in self])

    def _recommended_row(self) -> dict[str, Any]:
        """Figures of the recommended plan as a row of to_pandas(); empty where nothing fits."""
        best = self.recommended
        return {} if best is None else {"layout": layout_text(best.layout)} | flat(best.layout) | flat(best.predicted)

    def plot(self, ax: Any = None) -> Any:
        """Draws time against memory with a point for each plan, numbered by rank, and a line at the memory limit. Draws on `ax`, or on new
        axes, and returns them. Needs matplotlib, which nothing else here does."""
        if ax is None:
            ax = importlib.import_module("matplotlib.pyplot").figure().add_subplot()
        gib = [plan.peak_bytes / 2**30 for plan in self]
        ax.scatter(gib, [plan.iteration_seconds for plan in self])
        for plan, x in zip(self, gib, strict=True):
            ax.annotate(str(plan.rank), (x, plan.iteration_seconds), xytext=(4, 4), textcoords="offset points")
        if self:
            ax.axvline(self[0].predicted["memory"]["limit_bytes"] / 2**30, linestyle="--", color="gray")
        ax.set_xlabel("GiB on the fullest rank (dashed: limit)")
        ax.set_ylabel("seconds per step")
        ax.set_title(self._headline(), fontsize="medium")
        return ax

    def _headline(self) -> str:
        batch = self.answer["batch"]
        return (f"{self.answer['model']['name']} on {self.answer['world']:,} GPUs ({self.answer['cluster']['name']}), "
                f"batch of {batch['global_batch']:,} x {batch['sequence']:,} tokens")

    def _rows(self) -> list[dict[str, str]]:
        return [{"": str(plan.rank)} | cells_of(plan) for plan in self]

    def __repr__(self) -> str:
        rows = self._rows()
        if not rows:
            return f"{self._headline()}: nothing fits; .nearest says what is missing"
        widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
        lines = ["  ".join(cell.ljust(widths[name]) for name, cell in row.items()).rstrip()
                 for row in [{name: name for name in rows[0]}, *rows]]
        return "\n".join([self._headline(), *lines])

    def _repr_html_(self) -> str:
        """The table that notebooks show."""
        import html

        head = f"<p>{html.escape(self._headline())}</p>"
        rows = self._rows()
        if not rows:
            return head + "<p>Nothing fits; <code>.nearest</code> says what is missing.</p>"
        body = "".join(f"<tr>{_cells(row.values(), 'td')}</tr>" for row in rows)
        assumed = f"<p><small>assumed: {html.escape(', '.join(self.assumed))}</small></p>" if self.assumed else ""
        return f"{head}<table><thead><tr>{_cells(rows[0], 'th')}</tr></thead><tbody>{body}</tbody></table>{assumed}"


class Prediction(Plan):
    """What simulate answers: one layout and what it is predicted to cost. ``answer`` holds all fields, with per_rank=True the ranks'."""

    def __init__(self, answer: Answer):
        super().__init__({"layout": answer["layout"], "predicted": answer["predicted"]}, answer._plans[0])
        self.answer = answer

    @property
    def notes(self) -> tuple[str, ...]:
        """What the command line says on stderr: pins without effect, flags that are not computed."""
        return self.answer.notes

    def to_json(self) -> str:
        """The JSON text, as ``--format json`` prints it."""
        return self.answer.to_json()

    def to_dict(self) -> dict[str, Any]:
        """A copy of the whole answer that may be changed."""
        return self.answer.to_dict()


class Better(Plan):
    """A faster layout of the same command, or one that fits where the command's does not."""

    def __init__(self, entry: Mapping[str, Any], plan_file: str):
        super().__init__(entry, plan_file)
        self.gain: float | None = entry["gain"]
        """Tokens per second more: 0.1 is a tenth; None where the command itself is not legal."""
        self.changes: Any = entry["changes"]
        """The flags to change."""


class Check:
    """What check says of a Megatron-LM command."""

    def __init__(self, answer: Answer):
        self.answer = answer
        plans = list(answer._plans)
        self.legal: bool = answer["legal"]
        self.fits: bool | None = answer["fits"]
        """None where a flag that decides it is not computed, or the command is not legal."""
        self.problems: list[str] = list(answer["problems"])
        """Why it is not legal."""
        self.asked: Plan | None = Plan({"layout": answer["layout"], "predicted": answer["predicted"]}, plans.pop(0)) if self.legal else None
        """The command's own layout; None where it is not legal."""
        better = answer["better"] or []
        self.better: list[Better] = [Better(entry, file) for entry, file in zip(better, plans, strict=True)]

    @property
    def runs(self) -> bool:
        """Legal, and nothing says that it does not fit."""
        return self.legal and self.fits is not False

    @property
    def notes(self) -> tuple[str, ...]:
        """What the command line says on stderr: flags that are unknown, or without effect."""
        return self.answer.notes

    def to_json(self) -> str:
        """The JSON text, as ``--format json`` prints it."""
        return self.answer.to_json()

    def to_dict(self) -> dict[str, Any]:
        """A copy of the whole answer that may be changed."""
        return self.answer.to_dict()

    def __repr__(self) -> str:
        if not self.legal:
            return f"<mgplan.Check: not legal: {'; '.join(self.problems)}>"
        fits = {True: "fits", False: "does not fit", None: "may or may not fit"}[self.fits]
        assert self.asked is not None
        return f"<mgplan.Check: legal, {fits}, {self.asked.iteration_seconds:.3f} s a step, {len(self.better)} better>"


class Export:
    """A plan in the words of the program that is to train it. str() is the file's text."""

    def __init__(self, text: str, answer: Answer):
        self.text = text
        self.answer = answer
        self.environment: dict[str, str] = answer.get("environment", {})
        self.arguments: list[str] = answer.get("arguments", [])
        """The command's words: flags and their values."""
        self.lost: list[str] = answer.get("lost", [])
        """What no flag says."""

    def to_json(self) -> str:
        """The JSON text, as ``--format json`` prints it."""
        return self.answer.to_json()

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<mgplan.Export: {len(self.arguments)} words>"
