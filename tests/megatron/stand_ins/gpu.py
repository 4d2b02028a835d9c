"""Answers of the CUDA driver. Tensors "on the GPU" are on torch's meta device, where they have shapes and no memory, or on the CPU."""

import contextlib
import types

import torch
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("meta")  # what holds the GPU's tensors
capability = [9, 0]


def set_capability(major, minor):
    capability[:] = [major, minor]


def in_its_place(device):
    return DEVICE if device is not None and str(device).startswith("cuda") else device


class WithoutGpu(TorchFunctionMode):
    """Sends what is meant for a GPU to the device in its place."""

    def __torch_function__(self, function, types_, arguments=(), keywords=None):
        keywords = dict(keywords or {})
        if "device" in keywords:
            keywords["device"] = in_its_place(keywords["device"])
        if keywords.get("pin_memory"):
            keywords["pin_memory"] = False
        if function is torch.Tensor.cuda:
            return arguments[0].to(DEVICE)
        if function is torch.Tensor.to and len(arguments) > 1 and isinstance(arguments[1], (str, torch.device)):
            arguments = (arguments[0], in_its_place(arguments[1]), *arguments[2:])
        return function(*arguments, **keywords)


class Inert:
    """A stream or an event that nothing waits for."""

    cuda_stream = 0

    def __init__(self, *_, **__):
        pass

    def record_event(self, *_):
        return Inert()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def not_compiled(function=None, **_):
    return function or not_compiled


NAMES = {8: "NVIDIA A100", 9: "NVIDIA H100", 10: "NVIDIA B200"}  # DeepEP's condition in Megatron-Bridge begins with these


def properties(*_):
    return types.SimpleNamespace(major=capability[0], minor=capability[1], name=NAMES.get(capability[0], "a GPU that is not there"), total_memory=80 * 2**30, multi_processor_count=132)


def install(device):
    global DEVICE  # pylint: disable=global-statement
    DEVICE = torch.device(device)
    answers = {
        "get_device_capability": lambda *_: tuple(capability), "get_device_properties": properties, "get_device_name": lambda *_: properties().name,
        "is_available": lambda: False, "device_count": lambda: 8, "current_device": lambda: DEVICE, "set_device": lambda *_: None,
        "synchronize": lambda *_: None, "empty_cache": lambda: None, "memory_allocated": lambda *_: 0, "max_memory_allocated": lambda *_: 0,
        "current_stream": lambda *_: Inert(), "default_stream": lambda *_: Inert(), "set_stream": lambda *_: None,
        "stream": lambda *_: contextlib.nullcontext(), "Stream": Inert, "Event": Inert,
        "get_rng_state": lambda *_: torch.get_rng_state(), "set_rng_state": lambda *_, **__: None, "manual_seed": lambda *_: None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    torch.nn.Module.cuda = lambda module, *_: module
    torch.compile = not_compiled  # importing its compiler takes 7 s


def keep_no_random_states(random):
    """For megatron.core.tensor_parallel.random, which keeps the states of the GPU's generator."""
    random._get_cuda_rng_state = lambda *_, graph_safe=False, **__: torch.Generator() if graph_safe else torch.get_rng_state()
    random._set_cuda_rng_state = lambda *_, **__: None
