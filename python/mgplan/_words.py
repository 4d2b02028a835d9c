"""Python values as the words and texts that commands take."""

from __future__ import annotations

import json
import numbers
import os
from typing import Any, Iterable, Mapping

from ._errors import InputError, pin_name, refusal
from ._results import Plan

Texts = dict[str, tuple[str, str]]
"""In place of files, by option or positional: the text's name and the text."""

# Options of the command line that say how to print, or that have no answer.
_NOT_PINS = {"format", "output", "help", "wide", "assumed", "all", "markdown", "list_flags"}
_SWITCHES = {"sequence_parallel"}  # on and off are words of these options
_FLAGS = {"no_distributed_optimizer", "strict", "balance_stages", "account_for_embedding", "account_for_loss", "per_rank", "gate",
          "exhaustive", "forward_only", "hybrid_context_parallel", "pad_buckets_for_high_nccl_busbw", "no_grad_reduce_in_fp32", "disable_bucketing", "shards"}


def text_of(field: str, value: str) -> str:
    """The string itself, where it can be written as UTF-8 and holds no zero byte."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise refusal(field, value, "holds half a character", "give a text that can be written as UTF-8") from None
    if "\0" in value:
        raise refusal(field, value, "holds a zero byte", "give a text without")
    return value


def scalar_word(field: str, value: Any) -> str:
    """A number, a text or a path as one word."""
    if isinstance(value, str):
        return text_of(field, value)
    if isinstance(value, os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str):
            return text_of(field, path)
    elif isinstance(value, numbers.Integral) and not isinstance(value, bool):
        try:
            return str(int(value))
        except ValueError:  # Python writes no more than 4,300 digits
            raise refusal(field, "a number of thousands of digits", "is out of range", "use a smaller one") from None
    elif isinstance(value, numbers.Real) and not isinstance(value, bool):
        return repr(float(value))
    raise refusal(field, value, f"is a {type(value).__name__}", "give a number, a text, or a list of these")


def pin_word(field: str, value: Any) -> str:
    """The word of a pin: lists have commas."""
    if isinstance(value, bool) and field in _SWITCHES:
        return "on" if value else "off"
    if isinstance(value, (list, tuple, range)):
        if len(value) > 10000:
            raise refusal(field, value, f"has {len(value)} members", "give fewer")
        return ",".join(scalar_word(field, each) for each in value)
    return scalar_word(field, value)


def pin_words(pins: Mapping[str, Any]) -> list[str]:
    """--name=value for each pin that is not None. Unknown names are the command's to refuse, with the nearest known one."""
    words = []
    for name, value in pins.items():
        if name in _NOT_PINS:
            raise refusal(name, value, "says how a command prints and is no pin", "leave it out; the answer has to_json() and to_dict()")
        option = text_of(name, name).replace("_", "-")
        if "=" in option:
            raise refusal(name, value, "is no name of a pin", "use names like tp or micro_batch")
        if value is None:
            continue
        if name in _FLAGS:
            if not isinstance(value, bool):
                raise refusal(name, value, "is neither True nor False", "use one of them")
            if value:
                words.append(f"--{option}")
        else:
            words.append(f"--{option}={pin_word(name, value)}")
    return words


def json_text(field: str, value: Any) -> str:
    """What a JSON file would hold; what JSON does not know (a torch.dtype) is written as text."""
    try:
        return text_of(field, json.dumps(value, default=str))
    except InputError:
        raise
    except Exception as error:  # an object's own str may do anything
        raise refusal(field, value, f"cannot be written as JSON ({error})", "give a dict of numbers, texts, lists and dicts") from None


def add_model(words: list[str], texts: Texts, model: Any) -> None:
    """A preset's name, a path, a dict (config.json or mgplan's own), an object with to_dict() such as a transformers config, or a Plan."""
    if isinstance(model, Plan):
        texts["model"] = ("plan", model._plan_file)
        return
    config = as_dict("model", model)
    if config is None:
        words.append(f"--model={scalar_word('model', model)}")
    else:
        texts["model"] = (model_name(config), json_text("model", config))


def as_dict(field: str, value: Any) -> Mapping[str, Any] | None:
    """Mappings as they are, and what to_dict() gives; None for anything else."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (str, os.PathLike, numbers.Number)) or isinstance(value, type) or not callable(getattr(value, "to_dict", None)):
        return None
    try:
        config = value.to_dict()
    except Exception as error:
        raise refusal(field, value, f"has a to_dict() that fails ({error})", "give a dict, or a config that works") from error
    if not isinstance(config, Mapping):
        raise refusal(field, value, "has a to_dict() that gives no dict", "give a dict, or a transformers config")
    return dict(config)


def model_name(config: Mapping[str, Any]) -> str:
    """The last part of the path or repository that the model came from; else what it calls itself."""
    for key in ("name", "_name_or_path", "name_or_path"):
        name = config.get(key)
        if isinstance(name, str) and name.strip("/ "):
            name = name.strip("/ ").rsplit("/", 1)[-1]
            if name.isprintable():
                return text_of("model", name)
    kind = config.get("model_type")
    return kind if isinstance(kind, str) and kind.isprintable() and kind else "model"


def add_cluster(words: list[str], texts: Texts, cluster: Any) -> None:
    """A preset's name with or without changed figures, a path, {"preset": "dgx-h100", "gpus_per_node": 4}, or a whole cluster."""
    if cluster is None:
        return
    if not isinstance(cluster, Mapping):
        words.append(f"--cluster={scalar_word('cluster', cluster)}")
        return
    if "preset" not in cluster:
        texts["cluster"] = ("cluster", json_text("cluster", dict(cluster)))
        return
    parts = [scalar_word("cluster", cluster["preset"])]
    for key, value in cluster.items():
        if key != "preset":
            parts.append(f"{scalar_word('cluster', key)}={scalar_word(str(key), value)}")
    words.append(f"--cluster={','.join(parts)}")


def add_routing(words: list[str], texts: Texts, routing: Any) -> None:
    """A word, a path, or counts: one for each expert, or a list of such lists."""
    if isinstance(routing, (list, tuple)):
        texts["routing-skew"] = ("routing_skew", json_text("routing_skew", routing))
    elif routing is not None:
        words.append(f"--routing-skew={scalar_word('routing_skew', routing)}")


def add_megatron(words: list[str], texts: Texts, args: Any) -> None:
    """A path; the words of a command (sys.argv[1:]); a text of flags; or {"tensor-model-parallel-size": 8, "swiglu": True}."""
    if isinstance(args, Mapping):
        args = _flags_of(args)
    if isinstance(args, (list, tuple)):
        import shlex  # only here: importing mgplan is to take no time

        text = shlex.join(scalar_word("megatron_args", each) for each in args)
    elif isinstance(args, str) and args.lstrip().startswith("-"):
        text = text_of("megatron_args", args)
    else:
        words.append(f"--megatron-args={scalar_word('megatron_args', args)}")
        return
    texts["megatron-args"] = ("megatron_args", text)


def _flags_of(args: Mapping[Any, Any]) -> Iterable[str]:
    """True is a flag without a value; False and None leave it out."""
    words = []
    for name, value in args.items():
        flag = scalar_word("megatron_args", name)
        flag = "--" + flag.removeprefix("--").replace("_", "-")
        if value is None or value is False:
            continue
        words.append(flag)
        if value is not True:
            members = value if isinstance(value, (list, tuple)) else [value]
            words += [scalar_word(pin_name(flag), each) for each in members]
    return words
