"""What is wrong with an input, in the words of the command line and taken apart."""

from __future__ import annotations

import re
from typing import Any, Mapping, NamedTuple, Sequence

# "tp = 3 does not divide world = 16", also behind "--model: config.json: "
_EQUATION = re.compile(r"""(?:^|:[ ])(?P<field>(?:--)?[A-Za-z][\w·./-]*(?:[ ][a-z]+)?)[ ]=[ ]
                           (?P<value>'[^']*'|"[^"]*"|(?:[^\s,;'"]|,(?=\S))+)[ ]?""", re.VERBOSE)
# "--world is missing", "--pick 2 picks the plan …", "--model: unknown model 'x'", "unknown option --tpp"
_OPTION = re.compile(r"--(?P<field>[a-z][a-z-]*)")
_QUOTED = re.compile(r"'(?P<value>[^']*)'")
_NUMBER = re.compile(r"^--[a-z-]+ (?P<value>[0-9]\S*)")


def pin_name(option: str) -> str:
    """The name that an option has in Python: "--global-batch" is global_batch."""
    return option.removeprefix("--").replace("-", "_").replace(" ", "_")


class Problem(NamedTuple):
    """One thing that is wrong with an input."""

    text: str
    """The whole sentence, as the command line prints it."""
    field: str | None
    """The pin or the field of a file: "tp", "hidden_size"; None where the sentence names none."""
    value: Any
    """What was given for it; None where nothing was."""
    rule: str
    """What does not hold: "does not divide world = 16"."""
    way_out: str
    """What to do: "use 1, 2, 4, 8 or 16"; "" where the sentence names nothing."""


def _split_at_way_out(text: str) -> tuple[str, str]:
    """At the first "; " outside quotes."""
    quote = ""
    for i, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"" and (i == 0 or not text[i - 1].isalnum()):  # not the one of "model's"
            quote = letter
        elif text.startswith("; ", i):
            return text[:i], text[i + 2 :]
    return text, ""


def read_problem(text: str, given: Mapping[str, Any]) -> Problem:
    """Takes a sentence of the command line apart. `given`: what Python was given, by pin."""
    head, way_out = _split_at_way_out(text)
    way_out = way_out.split("\n    ")[0]
    equation = _EQUATION.search(head)
    field: str | None
    if equation:
        field = pin_name(equation["field"])
        value: Any = equation["value"].strip("'\"")
        rule = head[equation.end() :]
    else:
        option = _OPTION.search(head)
        field = pin_name(option["field"]) if option else None
        found = _QUOTED.search(head) or _NUMBER.search(head)
        value = found["value"] if found else None
        rule = head
    if field is not None and given.get(field) is not None:
        value = given[field]
    return Problem(text, field, value, rule, way_out)


class InputError(ValueError):
    """An input that cannot be used; nothing was computed. The message is the command line's, a line for each problem.

    ``problems`` holds all of them; ``field``, ``value``, ``rule`` and ``way_out`` are those of the first.
    """

    def __init__(self, problems: Sequence[Problem]):
        super().__init__(list(problems))
        self.problems: tuple[Problem, ...] = tuple(problems)

    @classmethod
    def of(cls, texts: Sequence[str], given: Mapping[str, Any]) -> InputError:
        return cls([read_problem(text, given) for text in texts])

    def __str__(self) -> str:
        return "\n".join(problem.text for problem in self.problems)

    @property
    def field(self) -> str | None:
        return self.problems[0].field

    @property
    def value(self) -> Any:
        return self.problems[0].value

    @property
    def rule(self) -> str:
        return self.problems[0].rule

    @property
    def way_out(self) -> str:
        return self.problems[0].way_out


class InputWarning(UserWarning):
    """Something about an input that does not stop the answer: a pin without effect, a flag that is not computed."""


def refusal(field: str, value: Any, rule: str, way_out: str) -> InputError:
    """For what Python alone can be given; `rule` follows the value in the sentence."""
    try:
        shown = repr(value)
    except Exception:  # an object's own repr may do anything
        shown = f"a {type(value).__name__}"
    if len(shown) > 60:
        shown = shown[:57] + "..."
    return InputError([Problem(f"{field} = {shown} {rule}; {way_out}", field, value, rule, way_out)])
