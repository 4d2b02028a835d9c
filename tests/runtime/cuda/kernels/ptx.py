"""What the PTX of a kernel says about its loads and stores, and what ptxas says about its registers.

A loop is the text between a label and a branch back to it. What a thread has under way in it: the loads from global memory that stand
before the first instruction that reads what the first of them loaded. ptxas may move instructions, but has no reason to put a load
behind a use that PTX puts behind the load.
"""

import re
import subprocess

LOAD = re.compile(r"ld\.global(?:\.nc)?(?:\.v(\d))?\.[a-z](\d+)\s+(\{[^}]*\}|%\w+)")
STORE = re.compile(r"st\.global(?:\.v(\d))?\.[a-z](\d+)\s")
REGISTER = re.compile(r"%[a-z]+\d+")
# Other names for halves of registers: no work on the card, where registers have 32 bits each.
RENAME = re.compile(r"(?:mov\.b(?:32|64)|cvt\.u32\.u64|shr\.u64)\s+(\{[^}]*\}|%\w+),\s*(%\w+)(?:, 32)?;")


def plain_names(names):
    """C++ names of mangled ones, without the project's namespaces and parameters: run_packs<8, AddInto<Bf16, float>>."""
    written = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()
    plain = {}
    for name, full in zip(names, written):
        short = full.replace("mgplan::runtime::cuda::", "").replace("mgplan::runtime::", "").replace("> >", ">>").replace("> >", ">>")
        short = re.sub(r"\b(\d+)u\b", r"\1", short)  # as the code's own names have it
        plain[name] = short[short.index("run_"):short.index(">(") + 1] if ">(" in short else short
    return plain


def kernels_of(ptx):
    """Mangled name -> the lines of its body."""
    bodies, name = {}, None
    for line in ptx.splitlines():
        entry = re.search(r"\.entry (\w+)\(", line)
        if entry:
            name, bodies[entry.group(1)] = entry.group(1), []
        elif line == "}":
            name = None
        elif name is not None:
            bodies[name].append(line.strip())
    return bodies


def innermost_loops(body):
    labels = {line[:-1]: i for i, line in enumerate(body) if line.startswith("$") and line.endswith(":")}
    spans = set()
    for i, line in enumerate(body):
        branch = re.search(r"\bbra(?:\.uni)?\s+(\$\w+);", line)
        if branch and labels.get(branch.group(1), i) < i:
            spans.add((labels[branch.group(1)], i))
    return [body[begin:end] for begin, end in sorted(spans)
            if not any(other != (begin, end) and begin <= other[0] and other[1] <= end for other in spans)]


def under_way(loop):
    """The most loads of sixteen bytes, and the most bytes, that stand before a first use."""
    words = most_words = size = most_size = 0
    waiting = set()
    for line in loop:
        load = LOAD.search(line)
        if not load:
            rename = RENAME.search(line)
            if rename and rename.group(2) in waiting:
                waiting |= set(REGISTER.findall(rename.group(1)))
            elif waiting & set(REGISTER.findall(line)):
                waiting, words, size = set(), 0, 0
            continue
        address = set(REGISTER.findall(line[load.end():]))
        if waiting & address:  # a dependent load
            waiting, words, size = set(), 0, 0
        waiting |= set(REGISTER.findall(load.group(3)))
        loaded = int(load.group(1) or 1) * int(load.group(2)) // 8
        size += loaded
        words += loaded == 16
        most_words, most_size = max(most_words, words), max(most_size, size)
    return most_words, most_size


def wide_stores(body):
    """How many stores of sixteen bytes to global memory stand in it."""
    found = (STORE.search(line) for line in body)
    return sum(int(store.group(1) or 1) * int(store.group(2)) == 128 for store in found if store)


def facts_of(ptx, limits_of_ptxas):
    """Plain name -> loads of the kernel's loops, stores of sixteen bytes, registers and spilled bytes."""
    bodies = kernels_of(ptx)
    names = plain_names(list(bodies))
    facts = {}
    for mangled, body in bodies.items():
        loops = [loop for loop in innermost_loops(body) if any(LOAD.search(line) for line in loop)]
        facts[names[mangled]] = {"loops": sorted((under_way(loop) for loop in loops), reverse=True), "stores": wide_stores(body),
                                 **limits_of_ptxas[mangled]}
    return facts


def version_of(nvcc):
    """"13.0.88"."""
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"\bV(\d+\.\d+\.\d+)", said).group(1)


def assembled(nvcc, ptx_file, architecture):
    """Mangled name -> registers and spilled bytes, by ptxas."""
    ptxas = nvcc.parent / "ptxas"
    said = subprocess.run([ptxas, "-v", f"--gpu-name={architecture}", ptx_file, "-o", "/dev/null"], capture_output=True, text=True, check=True)
    found, name = {}, None
    for line in (said.stdout + said.stderr).splitlines():
        entry = re.search(r"Compiling entry function '(\w+)'", line)
        spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)
        registers = re.search(r"Used (\d+) registers", line)
        if entry:
            name = entry.group(1)
            found[name] = {"registers": 0, "spilled": 0}
        elif spills:
            found[name]["spilled"] = int(spills.group(1)) + int(spills.group(2))
        elif registers:
            found[name]["registers"] = int(registers.group(1))
    return found
