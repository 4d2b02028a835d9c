"""Prints python/mgplan/__init__.pyi: the functions with every pin by name, type and meaning, from the command line's own declarations.

    PYTHONPATH=… python3 python/write_stub.py > python/mgplan/__init__.pyi

needs an installed mgplan. A test compares (tests/python/types_test.py).
"""

import ast
import inspect
import json
import sys
import textwrap
from pathlib import Path

sys.path = [place for place in sys.path if Path(place).resolve() != Path(__file__).parent.resolve()]  # the sources beside, not installed
import mgplan  # noqa: E402
from mgplan import _mgplan, _words  # noqa: E402

HEAD = '''"""{doc}"""

# Written by python/write_stub.py.

import os
from typing import Any, Literal, Mapping, Sequence

from ._errors import InputError as InputError, InputWarning as InputWarning, Problem as Problem
from ._results import (
    Answer as Answer,
    Better as Better,
    Check as Check,
    Export as Export,
    Plan as Plan,
    Prediction as Prediction,
    Ranking as Ranking,
)

__version__: str
__all__: list[str]

_Path = str | os.PathLike[str]
_Numbers = int | str | Sequence[int]
_Words = str | Sequence[str]
'''

# What the arguments of the functions take; pins have what their options say.
ARGUMENTS = {
    "model": "_Path | Mapping[str, Any] | Plan | Any",  # | Any: whatever has to_dict()
    "world": "int | str",
    "cluster": "_Path | Mapping[str, Any] | None",
    "megatron_args": "_Path | Sequence[Any] | Mapping[str, Any]",
    "routing_skew": "_Path | Sequence[Any] | None",
    "params": "_Path | Sequence[Mapping[str, Any]] | None",
    "plan": "Plan | _Path | Mapping[str, Any]",
    "on": "Sequence[str]",
    "over": "Mapping[str, Sequence[Any]]",
    "a": "Plan | _Path | Mapping[str, Any]",
    "b": "Plan | _Path | Mapping[str, Any]",
    "name": "_Path",
    "to": 'Literal["megatron-args", "megatron-yaml", "mgplan"]',
    "pp": "int | str",
    "microbatches": "int | str",
    "dp": "int | str",
}


def pins_of(command):
    """Its options, but those that are no pins."""
    described = json.loads(_mgplan.answer(command, ["--help", "--format=json"], {}).out)
    for group in described["groups"]:
        for option in group["options"]:
            name = option["name"].replace("-", "_")
            if name not in _words._NOT_PINS:
                yield name, option


def type_of(name, option):
    value = option["value"]
    words = ", ".join(json.dumps(word) for word in option["words"])
    if not value:
        return "bool"
    if name in _words._SWITCHES:
        return f"bool | Literal[{words}]"
    if option["takes_list"]:
        return "_Words"
    if words:
        return f"Literal[{words}]"
    return {"N": "int | str", "LIST": "_Numbers", "SIZE": "int | str", "X": "float | str", "FILE": "_Path", "COUNT": "float | str",
            "P": "float | str", "N|none": "int | str"}.get(value, "_Words" if "," in value else "str")


def function_text(name):
    function = getattr(mgplan, name)
    signature = inspect.signature(function)
    lines, documented, keyword_only = [], [], False
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            lines.append("*")
        kind = ARGUMENTS[parameter.name]
        if name == "plan" and parameter.name == "world":
            kind = "_Numbers"  # required: it may be left out only so that what stands in its place is refused by name
        if parameter.default is inspect.Parameter.empty or (name, parameter.name) == ("plan", "world"):
            lines.append(f"{parameter.name}: {kind}")
        else:
            if parameter.default is None and "None" not in kind:
                kind += " | None"
            lines.append(f"{parameter.name}: {kind} = ...")
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values()):
        if not keyword_only:
            lines.append("*")
        for pin, option in pins_of("plan" if name == "sweep" else name.replace("_", "-")):
            if pin in signature.parameters or (name == "check" and pin == "model"):
                continue
            lines.append(f"{pin}: {type_of(pin, option)} | None = ...")
            preset = f" (default: {option['preset']})" if option["preset"] and option["value"] else ""
            documented += textwrap.wrap(f"{pin}: {option['help']}{preset}.", 130, subsequent_indent="    ")
    doc = [textwrap.indent(inspect.cleandoc(function.__doc__), "    ").lstrip()]
    if documented:
        doc += ["", "    Pins:", "", *("    " + line for line in documented)]
    body = "\n".join(doc)
    result = signature.return_annotation
    arguments = "".join(f"\n    {line}," for line in lines)
    return f'def {name}({arguments}\n) -> {result}:\n    """{body}\n    """\n'


def stub():
    text = HEAD.format(doc=mgplan.__doc__)
    for name in ("plan", "sweep", "simulate", "check", "export", "least", "side_by_side", "diff", "schedule", "groups", "split", "graphs", "buffers", "models", "clusters"):
        text += "\n" + function_text(name)
    ast.parse(text)
    return text


if __name__ == "__main__":
    print(stub(), end="")
