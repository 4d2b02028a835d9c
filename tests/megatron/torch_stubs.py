"""Makes the CUDA build of torch importable on a machine without CUDA, where its wheel is the only one that PyPI has for Linux.

What torch computes on CPUs and on the meta device needs nothing of CUDA, but its libraries name CUDA's among those that the loader must
find, with the versions of their symbols. One library that defines every symbol that nothing else defines, under all of these names, is
enough. CUDA's functions in it return "no device"; the others, those of torch's CUDA library, return the address of a page of zeros, which
is a valid reference and, as its last byte is 0, false.
"""

import collections
import os
import re
import subprocess
from pathlib import Path

NAMES_OF_DATA = re.compile(r"_ZT[VTIS]|_ZGV|_ZN.*E$(?<!Ev)")
UNNEEDED = ("torch/bin/", "torch/include/", "torch/share/", "torch/test/", "torch/lib/libtorch_cuda", "torch/lib/libtorch_nvshmem")
NO_DEVICE = 100  # cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE
STUB = "libmgplan_no_cuda.so"


def is_needed(name):
    """Returns true if a file of torch's wheel is read by programs that use no GPU."""
    return name == "torch/bin/torch_shm_manager" or not name.startswith(UNNEEDED) and not name.endswith((".h", ".hpp", ".cuh", ".cmake"))


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def needed_libraries(library):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", library))


def dynamic_symbols(library):
    """Returns (defined names, undefined [(name, version or None, weak)])."""
    defined, undefined = set(), []
    for line in output("nm", "-D", library).splitlines():
        kind, symbol = line[17:].split(" ", 1)
        name, _, version = symbol.partition("@")
        if kind in "Uwv":
            undefined.append((name, version.lstrip("@") or None, kind != "U"))
        else:
            defined.add(name)
    return defined, undefined


def system_libraries():
    """Names of the libraries that the loader finds by itself, with their paths."""
    found = {}
    listing = subprocess.run(["/sbin/ldconfig", "-p"], check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in listing.splitlines():
        match = re.match(r"\s+(\S+) \(.*x86-64.*\) => (\S+)", line)
        if match:
            found.setdefault(match[1], match[2])
    return found


def write_stubs(torch_folder, compiler="c++"):
    """Writes the stub library and its names into torch's folder of libraries, where torch's own search path finds them."""
    folder = Path(torch_folder) / "lib"
    for path in folder.iterdir():
        if path.is_symlink() or path.name == STUB:
            path.unlink()
    libraries = sorted(folder.glob("*.so*")) + sorted(Path(torch_folder).glob("*.so"))
    system = system_libraries()
    missing, defined, undefined = set(), set(), []
    for library in libraries:
        own_defined, own_undefined = dynamic_symbols(library)
        defined |= own_defined
        undefined += own_undefined
        for name in needed_libraries(library):
            if (folder / name).exists():
                continue
            if name in system and not re.match("lib(cu|nv|nccl)", name):
                defined |= dynamic_symbols(system[name])[0]
            elif not name.startswith("ld-linux"):
                missing.add(name)
    versions = collections.defaultdict(set)
    for name, version, weak in undefined:
        if name not in defined and not weak and not name.startswith("Py") and not name.startswith("_Py"):
            versions[version].add(name)
    text, script = [".text"], []
    for version, names in sorted(versions.items(), key=lambda item: item[0] or ""):
        for name in sorted(names):
            text.append(f'.globl "{name}"\n.type "{name}", @{"object" if NAMES_OF_DATA.match(name) else "function"}')
        if version:
            script.append(f"{version} {{ global: {'; '.join(sorted(names))}; }};")
    every = sorted(set().union(*versions.values()))
    functions = [name for name in every if not NAMES_OF_DATA.match(name)]
    for is_cuda, result in ((True, f"movl ${NO_DEVICE}, %eax"), (False, "leaq scratch(%rip), %rax")):
        text += [f'"{name}":' for name in functions if name.startswith("cu") == is_cuda]
        text.append(f"{result}\nret")
    text.append(".data\n.balign 4096\nscratch: .zero 4096")
    for name in every:
        if name.startswith("_ZTI"):  # pybind11 hashes the names of types
            text.append(f'"{name}": .quad _ZTVN10__cxxabiv117__class_type_infoE+16, 1f\n1: .asciz "{name[4:]}"\n.balign 64\n.size "{name}", 16')
        elif NAMES_OF_DATA.match(name):
            text.append(f'"{name}": .zero 64\n.size "{name}", 64')
    text.append('.section .note.GNU-stack,"",@progbits\n')
    (folder / "no_cuda.s").write_text("\n".join(text))
    (folder / "no_cuda.map").write_text("\n".join(script) + "\n")
    subprocess.run([compiler, "-shared", "-nostartfiles", "-Wl,--no-as-needed", f"-Wl,-soname,{STUB}", f"-Wl,--version-script={folder / 'no_cuda.map'}", "-o", folder / STUB,
                    folder / "no_cuda.s"], check=True)
    for name in missing:
        os.symlink(STUB, folder / name)
    return len(every), sorted(missing)
