#!/usr/bin/env python3
"""Fails when a function of the rooms is reached by nothing that users have: find_unreached.py [PROJECT_ROOT]

Builds the programs (the command, both examples) with all of every room linked into each, every function in a section of its own and none
inlined (preset `unreached`), and reads which functions the linker finds no way to from main() (--gc-sections). What no program
reaches, and the sources of the Python module do not name, is dead, or alive for tests alone, unless it is listed below with a
reason. A virtual function counts as reached where a table of its class is. Entries that are no longer needed are offences too.

Installed headers are not read: the development package has every header of the rooms, so that whatever one declares would count as
reached. What others are meant to call has its example instead.
"""
import re
import subprocess
import sys
from pathlib import Path

# Prefix of a qualified name -> why it stays although no program comes to it.
EXCEPTIONS = {
    "mgplan::formats::hub_repositories": "the table that tests walk: each name must have its preset",
    "mgplan::formats::known_tokenizers": "the table that tests walk",
    "mgplan::simulator::megatron_policies": "the table that tests walk: each policy must have its source and its effect",
    "mgplan::layer_parameters": "a layer of a kind by its sizes, without a layout: what tests of layers allocate",
    "mgplan::layer_parameter_count": "the same, counted",
    "mgplan::layer_of_kind": "part of both",
    "mgplan::simulator::replay_allocator": "a replay without a limit, against which tests hold those that end early",
    "mgplan::stage_parameter_count": "the count of a stage without the list of its parameters, against which tests hold the list",
    "mgplan::cli::LocalServer::stop": "ends a server that runs on a thread, as in tests; the command ends by signal",
    "mgplan::model::Communicator::broadcast": "a verb of the contract that every transport keeps; nothing broadcasts yet",
    "mgplan::model::RankTrainer::parameters": "how tests compare the weights that layouts end with",
    "mgplan::model::Tensor::as": "how tests look into a tensor",
    "mgplan::model::sum_of_squares": "how tests and benches of GPUs read such a sum",
    "mgplan::runtime::cpu::limit_vector_units": "how tests hold kernels for wide vector units against those for narrow ones",
    "mgplan::simulator::CostModel::costs": "the costs of a layer that tests of kernels, graphs and fusions look at",
    "mgplan::simulator::CostModel::estimate": "the closed form as one prediction, which tests hold against the timeline",
}

REMOVED = re.compile(r"removing unused section .*?\(?\.text\.(?:unlikely\.|startup\.|hot\.)?(_Z\w+)\)?")


def removed_by(output):
    """Mangled names of functions that a linker (ld.lld, ld.bfd) says it removed."""
    return set(REMOVED.findall(output))


def qualified_name(demangled):
    """ "mgplan::plan::f" of "std::vector<int> mgplan::plan::f<int>(int) const"; None for what no source file defines under a name."""
    text = re.sub(r"\(anonymous namespace\)::", "", demangled)
    text = re.sub(r"\[abi:\w+\]", "", text)
    if "{lambda" in text or "'lambda" in text or "$_" in text or text.startswith(("guard variable", "non-virtual thunk", "virtual thunk")):
        return None
    depth, name = 0, ""
    for character in text:
        if character in "<":
            depth += 1
        elif character == ">" and depth:
            depth -= 1
        elif depth == 0:
            if character == "(":
                break
            name = "" if character == " " else name + character
    name = name.lstrip("&*")
    if not name.startswith("mgplan::") or "operator" in name:
        return None
    parts = name.split("::")
    if len(parts) > 1 and (parts[-1] == parts[-2] or parts[-1].startswith("~")):
        return None  # constructors and destructors, which the compiler writes several of
    return name


def demangle(names):
    """Each mangled name with its qualified name, without those that have none."""
    ordered = sorted(names)
    text = subprocess.run(["c++filt"], input="\n".join(ordered), capture_output=True, text=True, check=True).stdout
    pairs = zip(ordered, map(qualified_name, text.splitlines()))
    return {mangled: name for mangled, name in pairs if name is not None}


def unreached(outputs, mentioned):
    """Qualified names that every program's linker removed, of which `mentioned` holds no word."""
    common = set.intersection(*map(removed_by, outputs))
    everywhere = demangle(common)
    # An overload or a template's instance that is reached keeps its name alive.
    names = {name for name in everywhere.values() if name.split("::")[-1] not in mentioned}
    return sorted(names)


def complaints(names, exceptions):
    """Lines about names that no exception covers, and about exceptions that cover nothing."""
    lines = [f"{name}: no program, example or Python binding reaches it; remove it, move it to tests/, or list it in tests/house/find_unreached.py"
             for name in names if not any(name.startswith(prefix) for prefix in exceptions)]
    return lines + [f"{prefix}: is reached now, or gone; remove it from EXCEPTIONS in tests/house/find_unreached.py"
                    for prefix in exceptions if not any(name.startswith(prefix) for name in names)]


def link_outputs(root):
    """What the linker says of each program."""
    build = root / "build/unreached"
    subprocess.run(["cmake", "--preset", "unreached"], cwd=root, check=True, stdout=subprocess.DEVNULL)
    programs = sorted(re.findall(r"whole_(?!programs)\w+(?=: phony)", subprocess.run(["ninja", "-C", str(build), "-t", "targets", "all"], capture_output=True, text=True, check=True).stdout))
    outputs = []
    for program in programs:
        for binary in build.rglob(program):
            if binary.is_file():
                binary.unlink()  # linked again, to hear what the linker says
        done = subprocess.run(["cmake", "--build", str(build), "--target", program], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout[-4000:] + done.stderr[-4000:])
        outputs.append(done.stdout + done.stderr)
    return outputs


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]).resolve()
    mentioned = set(re.findall(r"\w+", "".join(path.read_text(encoding="utf-8") for path in sorted((root / "python").glob("*.cpp")))))
    lines = complaints(unreached(link_outputs(root), mentioned), EXCEPTIONS)
    for line in lines:
        print(line)
    print(f"find_unreached: {len(lines)} offences" if lines else "find_unreached: every function is reached")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
