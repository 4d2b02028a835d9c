#!/usr/bin/env python3
"""Fails where a part of a layer is asked for its kind outside of the files that are about that kind: check_kinds.py [PROJECT_ROOT]

A kind of part ("mamba2") has rows in tables (plan/model/layer_parts_*.cpp, plan/parameters/computed_*.cpp, model/layers/layer_half.cpp)
that say what it is; a comparison of a part's kind with its name elsewhere is a place that who adds a kind has to find. What is left is
listed below with its reason and the comparisons that the file may have; that list only shrinks: more of them, and an entry that is
larger than what is there, are offences.
"""
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True

ROOMS = ("plan", "formats", "model", "planner", "simulator", "runtime", "reports", "jobs", "cli", "python")
SUFFIXES = {".cpp", ".hpp", ".cu", ".cuh"}
# Files of the kinds themselves: their sizes and tensors, what is computed of them, the configs that they come from.
OWN = re.compile(r"plan/model/layer_parts\w*\.cpp|plan/parameters/computed_\w+\.cpp|model/layers/|formats/hugging_face/compose_\w+\.cpp")

# file: (comparisons, why they stand there)
ALLOWED = {
    "plan/model/model_spec.cpp": (3, "fields that belong to layers of one kind alone, and how many residual streams there are"),
    "plan/parameters/composed_layer.cpp": (29, "which parts make a layer, and in which order; what selective recompute is without a word"),
    "plan/parameters/layer_kinds.cpp": (2, "a mixture is a kind of layer; latents are projected up"),
    "plan/parameters/parameters.cpp": (3, "what stands beside the layers has names of its own"),
    "plan/model/layer_parts.hpp": (1, "declares a question"),
    "plan/layout/beside_streams.cpp": (1, "streams beside layers of parts"),
    "planner/constraints.cpp": (3, "keys that layers take over from others; latents; documents that attention does not tell apart"),
    "planner/search_axes.cpp": (1, "sets of recomputed modules as published"),
    "planner/switch_rules.cpp": (2, "attention that keeps its core"),
    "formats/hugging_face/composer.cpp": (2, "a mixture's sizes are a config's own fields"),
    "formats/hugging_face/weight_names.cpp": (2, "tensors as they are published"),
    "formats/megatron/megatron_hybrid_flags.cpp": (2, "letters and flags that Megatron-LM has"),
    "simulator/piece/recurrent_policies.cpp": (2, "kernels that Megatron-LM calls"),
    "reports/published_accuracy.cpp": (3, "kinds of models of which no run is published"),
    "cli/megatron_round_trip.cpp": (2, "an MLP beside experts takes their activation from the flags"),
}

KIND = re.compile(r"PartKind\{\"(\w+)\"")
# `part.kind == "mamba2"`, `"mamba2" != part.kind`, and questions that name a kind: `mixes_by(context, "mamba2")`, `has_compressed_attention(`.
ASKED = re.compile(r"\bkind\s*[!=]=\s*\"(\w+)\"|\"(\w+)\"\s*[!=]=\s*[\w.>()-]*\bkind\b|\b(?:has_part|mixes_by)\([^()\"]*\"(\w+)\"\)|"
                   r"\bhas_(compressed_attention)\(")


def kinds_of_parts(root):
    """The names of all kinds of parts."""
    return {name for file in sorted((root / "plan/model").glob("layer_parts*.cpp")) for name in KIND.findall(file.read_text())}


def comparisons(text, kinds):
    """Yields (line number, kind) of each question for a part's kind in a C++ text."""
    for number, line in enumerate(text.split("\n"), 1):
        for found in ASKED.finditer(line):
            name = next(filter(None, found.groups()))
            if name in kinds:
                yield number, name


def offences(root):
    kinds = kinds_of_parts(root)
    if not kinds:
        return ["plan/model/layer_parts*.cpp names no kind of part"]
    found = []
    for room in ROOMS:
        for file in sorted((root / room).rglob("*")):
            name = file.relative_to(root).as_posix()
            if file.suffix not in SUFFIXES or OWN.match(name):
                continue
            asked = list(comparisons(file.read_text(), kinds))
            allowed = ALLOWED.get(name, (0, ""))[0]
            if len(asked) > allowed:
                where = ", ".join(f"line {number} ({kind})" for number, kind in asked)
                found.append(f"{name} asks {len(asked)} times for a part's kind, {allowed} are listed: {where}; "
                             "let a row of the kind's tables answer")
            elif len(asked) < allowed:
                found.append(f"{name} asks {len(asked)} times for a part's kind, {allowed} are listed; shorten the list")
    for name in ALLOWED:
        if not (root / name).is_file():
            found.append(f"{name} is listed and not there")
    return found


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = offences(root)
    for offence in found:
        print(offence)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
