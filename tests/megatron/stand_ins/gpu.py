"""Answers of the CUDA driver. Tensors "on the GPU" are on torch's meta device: they have shapes and no memory."""

import contextlib
import types

import torch
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("meta")
capability = [9, 0]


def set_capability(major, minor):
    capability[:] = [major, minor]


def on_meta(device):
    return DEVICE if device is not None and str(device).startswith("cuda") else device


class GpuIsMeta(TorchFunctionMode):
    """Sends what is meant for a GPU to the meta device."""

    def __torch_function__(self, function, types_, arguments=(), keywords=None):
        keywords = dict(keywords or {})
        if "device" in keywords:
            keywords["device"] = on_meta(keywords["device"])
        if keywords.get("pin_memory"):
            keywords["pin_memory"] = False
        if function is torch.Tensor.cuda:
            return arguments[0].to(DEVICE)
        if function is torch.Tensor.to and len(arguments) > 1 and isinstance(arguments[1], (str, torch.device)):
            arguments = (arguments[0], on_meta(arguments[1]), *arguments[2:])
        return function(*arguments, **keywords)


class Inert:
    """A stream or an event that nothing waits for."""

    cuda_stream = 0

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def not_compiled(function=None, **_):
    return function or not_compiled


def properties(*_):
    return types.SimpleNamespace(major=capability[0], minor=capability[1], name="a GPU that is not there", total_memory=80 * 2**30, multi_processor_count=132)


def install():
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
