#!/usr/bin/env python3
"""Fails where a part of a layer is asked for its kind outside of the files that are about that kind, and advises on long files that
who adds a mixer touches: check_kinds.py [PROJECT_ROOT]

A kind of part ("mamba2") has a row in a table (plan/parts/layer_parts.cpp) that says what it is and answers what is asked of it; a comparison of a part's kind with its name elsewhere is a place that who adds a kind
has to find. What is left is no question about a part: words of foreign files and of tables that are written as kinds are. It is listed
below with its reason and the comparisons that the file may have; that list only shrinks: more of them, and an entry that is larger than
what is there, are offences.
"""
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True

ROOMS = ("plan", "formats", "model", "planner", "simulator", "runtime", "reports", "jobs", "cli", "python")
SUFFIXES = {".cpp", ".hpp", ".cu", ".cuh"}
# Files of the kinds themselves: their sizes and tensors, what is computed of them, the layers that they are, the configs that they come from.
OWN = re.compile(r"plan/parts/\w+\.cpp|formats/hugging_face/compose_\w+\.cpp")

# Files that a new mixer touches (docs/adding.md). An advice asks about those that are longer than one sitting reads.
OF_MIXERS = ("plan/parts/*.cpp", "plan/parameters/composed_layer.cpp", "model/layers/layer_half.hpp", "model/layers/stream_ends.?pp",
             "formats/hugging_face/compose*.?pp", "formats/hugging_face/model_type_table*.?pp",
             "formats/hugging_face/weight_name_table.?pp", "formats/hugging_face/mixer_weights.cpp", "formats/megatron/megatron_mixers.?pp",
             "simulator/piece/recurrent_policies.?pp", "simulator/piece/engine_policies.?pp")
MOST_LINES = 400

# file: (comparisons, why they stand there)
ALLOWED = {
    "formats/hugging_face/composer.cpp": (1, "\"mamba\" is a word of layer_types in published configs, for mixers of several kinds"),
    "formats/megatron/megatron_hybrid.cpp": (1, "\"gated_delta_net\" is a value of Megatron-LM's --experimental-attention-variant"),
    "reports/model_summary.cpp": (1, "\"latent_attention\" is a word of the table for layers that fields describe"),
}

KIND = re.compile(r"PartKind\{\"(\w+)\"")
# Names of kinds that are words of other things too: asked for only where a kind is compared.
WORDS = {"attention", "experts", "indexer", "linear", "mlp", "norm", "table", "values"}
LITERAL = r"(?:std::string(?:_view)?[({])?\"(\w+)\""
# `part.kind == "mlp"`, `"mlp" != part.kind`, questions that name a kind: `mixes_by(context, "mamba2")`, `has_mamba2(`; and any comparison
# with a name that is no other word: `mixer == "mamba2"`.
ASKED = re.compile(r"\bkind(?:\(\))?\s*[!=]=\s*" + LITERAL + r"|\"(\w+)\"\s*[!=]=\s*[\w.>()-]*\bkind\b|"
                   r"\b(?:has_part|mixes_by)\([^()\"]*\"(\w+)\"\)|\bhas_(\w+)\(")
COMPARED = re.compile(r"[!=]=\s*" + LITERAL + r"|\"(\w+)\"\s*[!=]=")


def kinds_of_parts(root):
    """The names of all kinds of parts."""
    return {name for file in sorted((root / "plan/parts").glob("layer_parts.cpp")) for name in KIND.findall(file.read_text())}


def comparisons(text, kinds):
    """Yields (line number, kind) of each question for a part's kind in a C++ text."""
    for number, line in enumerate(text.split("\n"), 1):
        places = {}
        for pattern, asked in ((ASKED, kinds), (COMPARED, kinds - WORDS)):
            for found in pattern.finditer(line):
                name = next(filter(None, found.groups()))
                if name in asked:
                    places[found.end(), name] = name
        for name in places.values():
            yield number, name


def offences(root):
    kinds = kinds_of_parts(root)
    if not kinds:
        return ["plan/parts/layer_parts.cpp names no kind of part"]
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


def advice(root):
    """A line for each long file that mixers touch. It fails nothing."""
    for pattern in OF_MIXERS:
        for file in sorted(root.glob(pattern)):
            lines = file.read_text().count("\n")
            if lines > MOST_LINES:
                yield f"{file.relative_to(root).as_posix()}, which mixers touch, has {lines} lines; ask whether there are two meanings"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = offences(root)
    for line in (*found, *advice(root)):
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
