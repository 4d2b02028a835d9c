"""Stand-ins for what Megatron-LM needs of a GPU machine, so that its Python runs on a CPU: packages of CUDA kernels, answers of the CUDA
driver, process groups. `install()` puts them in place; it comes before the first import of megatron."""

import typing

import typing_extensions


def install(device="meta", communicates=False):
    """`device` holds what is meant for the GPU. With `communicates` process groups are torch's own, and Megatron-LM computes without Transformer
    Engine."""
    typing.override = typing_extensions.override  # part of `typing` from Python 3.12 on
    from stand_ins import gpu, groups, packages

    packages.install({"triton"} if communicates else packages.ROOTS)
    gpu.install(device)
    if not communicates:
        groups.install()
