"""Packages of CUDA kernels that exist in name: transformer_engine, mamba_ssm, causal_conv1d, fla and what belongs to them.

Modules of Transformer Engine hold parameters of the right shapes under the right names, since memory, buckets and checkpoints come from
them. Everything else of a package is a class or a function that can be named, inherited from and passed on, and raises when it is called.
Sources of shapes and names: the documentation of Transformer Engine 2.x (docs.nvidia.com/deeplearning/transformer-engine).
"""

import contextlib
import enum
import importlib
import importlib.abc
import importlib.machinery
import sys
import types

import torch

from stand_ins import gpu

TRANSFORMER_ENGINE = "2.16.0"
ROOTS = {"transformer_engine", "transformer_engine_torch", "mamba_ssm", "causal_conv1d", "fla", "triton"}
# Of Transformer Engine 2.19 and newer.
ABSENT = {"transformer_engine.pytorch.ep", "transformer_engine.pytorch.tensor.grouped_tensor"}
contents = {}


class NotOnThisMachine(RuntimeError):
    """A kernel was called: the oracle cannot say how the job goes on."""


def belongs_to(*modules):
    """Puts a class or function into these modules of a stand-in package."""

    def enter(thing):
        for module in modules:
            contents.setdefault(module, {})[thing.__name__] = thing
        return thing

    return enter


# --- Modules with parameters ------------------------------------------------------------------------------------


class Layer(torch.nn.Module):
    """A module whose parameters are on the device in the GPU's place."""

    def __init__(self, *_, **__):
        super().__init__()

    def new_parameter(self, name, shape, dtype, device="cuda"):
        where = gpu.DEVICE if str(device).startswith("cuda") else device
        self.register_parameter(name, torch.nn.Parameter(torch.empty(shape, dtype=dtype or torch.float32, device=where)))

    def fast_setattr(self, name, value):
        setattr(self, name, value)

    def set_tensor_parallel_group(self, group):
        self.tp_group = group

    def forward(self, *_, **__):
        raise NotOnThisMachine(f"forward of {type(self).__name__}")


belongs_to("transformer_engine.pytorch.module.base")(type("TransformerEngineBaseModule", (Layer,), {}))
BaseModule = contents["transformer_engine.pytorch.module.base"]["TransformerEngineBaseModule"]


def shard(in_features, out_features, parallel_mode, ranks):
    """Features of one rank's part of a linear layer."""
    of = {"column": out_features, "row": in_features}.get(parallel_mode, 0)
    assert of % ranks == 0, f"{of} is not divisible by {ranks}"
    return (in_features // ranks if parallel_mode == "row" else in_features, out_features // ranks if parallel_mode == "column" else out_features)


@belongs_to("transformer_engine.pytorch")
class Linear(BaseModule):
    def __init__(self, in_features, out_features, bias=True, parallel_mode=None, tp_size=1, tp_group=None, params_dtype=None, device="cuda", **settings):
        super().__init__()
        self.in_features, self.out_features = shard(in_features, out_features, parallel_mode, tp_size)
        self.parallel_mode, self.tp_size, self.tp_group, self.use_bias = parallel_mode, tp_size, tp_group, bias
        self.save_original_input = settings.get("save_original_input", False)
        self.new_parameter("weight", (self.out_features, self.in_features), params_dtype, device)
        if bias:
            self.new_parameter("bias", (self.out_features,), params_dtype, device)


@belongs_to("transformer_engine.pytorch")
class LayerNormLinear(BaseModule):
    def __init__(self, in_features, out_features, bias=True, normalization="LayerNorm", parallel_mode=None, tp_size=1, tp_group=None, params_dtype=None,
                 device="cuda", eps=1e-5, zero_centered_gamma=False, **_):
        super().__init__()
        self.in_features, self.out_features = shard(in_features, out_features, parallel_mode, tp_size)
        self.parallel_mode, self.tp_size, self.tp_group, self.use_bias = parallel_mode, tp_size, tp_group, bias
        self.eps, self.zero_centered_gamma, self.normalization = eps, zero_centered_gamma, normalization
        self.new_parameter("layer_norm_weight", (in_features,), params_dtype, device)
        if normalization != "RMSNorm":
            self.new_parameter("layer_norm_bias", (in_features,), params_dtype, device)
        self.new_parameter("weight", (self.out_features, self.in_features), params_dtype, device)
        if bias:
            self.new_parameter("bias", (self.out_features,), params_dtype, device)


@belongs_to("transformer_engine.pytorch", "transformer_engine.pytorch.ops")
class GroupedLinear(BaseModule):
    def __init__(self, num_gemms, in_features, out_features, bias=True, parallel_mode=None, tp_size=1, tp_group=None, params_dtype=None, device="cuda",
                 scale_bias=False, **settings):
        super().__init__()
        self.in_features, self.out_features = shard(in_features, out_features, parallel_mode, tp_size)
        self.num_gemms, self.parallel_mode, self.tp_size, self.tp_group, self.use_bias = num_gemms, parallel_mode, tp_size, tp_group, bias
        self.save_original_input = settings.get("save_original_input", False)
        for i in range(num_gemms):
            self.new_parameter(f"weight{i}", (self.out_features, self.in_features), params_dtype, device)
            if bias:
                self.new_parameter(f"bias{i}", (self.out_features,), params_dtype, device)


class Norm(Layer):
    has_bias = False

    def __init__(self, normalized_shape=None, eps=1e-5, params_dtype=None, dtype=None, device="cuda", hidden_size=None, zero_centered_gamma=False, **_):
        super().__init__()
        width = hidden_size if normalized_shape is None else normalized_shape
        self.eps, self.zero_centered_gamma = eps, zero_centered_gamma
        for name in ("weight", "bias")[: 1 + self.has_bias]:
            self.new_parameter(name, (width,) if isinstance(width, int) else tuple(width), params_dtype or dtype, device)


@belongs_to("transformer_engine.pytorch", "transformer_engine.pytorch.ops")
class RMSNorm(Norm):
    pass


@belongs_to("transformer_engine.pytorch", "transformer_engine.pytorch.ops")
class LayerNorm(Norm):
    has_bias = True


@belongs_to("transformer_engine.pytorch")
class DotProductAttention(Layer):
    def __init__(self, num_attention_heads, kv_channels, num_gqa_groups=None, tp_size=1, softmax_type="vanilla", **settings):
        super().__init__()
        groups = num_gqa_groups or num_attention_heads
        assert num_attention_heads % groups == 0, "The number of attention heads must be divisible by the number of GQA groups!"
        self.hidden_size_per_attention_head_k = kv_channels if isinstance(kv_channels, int) else kv_channels[0]
        self.cp_comm_type = settings.get("cp_comm_type", "p2p")
        if softmax_type == "learnable":
            self.new_parameter("softmax_offset", (num_attention_heads // tp_size,), torch.float32)


def mamba_gated_norm(self, hidden_size, eps=1e-5, group_size=None, norm_before_gate=True, device=None, dtype=None):
    torch.nn.Module.__init__(self)
    self.weight = torch.nn.Parameter(torch.empty(hidden_size, device=device, dtype=dtype))


contents["mamba_ssm.ops.triton.layernorm_gated"] = {"RMSNorm": type("RMSNorm", (torch.nn.Module,), {"__init__": mamba_gated_norm})}


# --- Optimizers, precision, random states ----------------------------------------------------------------------


@belongs_to("transformer_engine.pytorch.optimizers")
class FusedAdam(torch.optim.AdamW):
    def __init__(self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, adam_w_mode=True, weight_decay=0.0, amsgrad=False, *,
                 capturable=False, master_weights=False, use_decoupled_grad=False, store_param_remainders=False, master_weight_dtype=torch.float32,
                 exp_avg_dtype=torch.float32, exp_avg_sq_dtype=torch.float32, set_grad_none=None):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


@belongs_to("transformer_engine.pytorch.optimizers")
class FusedSGD(torch.optim.SGD):
    pass


@belongs_to("transformer_engine.pytorch", "transformer_engine.pytorch.fp8")
@contextlib.contextmanager
def fp8_model_init(enabled=True, recipe=None, preserve_high_precision_init_val=False):
    yield


@belongs_to("transformer_engine.pytorch", "transformer_engine.pytorch.fp8")
@contextlib.contextmanager
def fp8_autocast(enabled=True, calibrating=False, fp8_recipe=None, fp8_group=None):
    yield


@belongs_to("transformer_engine.pytorch")
@contextlib.contextmanager
def quantized_model_init(enabled=True, recipe=None, preserve_high_precision_init_val=False):
    yield


@belongs_to("transformer_engine.pytorch")
@contextlib.contextmanager
def autocast(enabled=True, calibrating=False, recipe=None, amax_reduction_group=None):
    yield


@belongs_to("transformer_engine.pytorch.fp8")
class FP8GlobalStateManager:
    is_fp8_enabled = staticmethod(lambda: False)
    is_fp8_available = staticmethod(lambda: (True, ""))


@belongs_to("transformer_engine.common.recipe")
class Format(enum.Enum):
    E4M3, E5M2, HYBRID = range(3)


class Recipe:
    def __init__(self, **settings):
        self.__dict__.update(settings)


for recipe in ("DelayedScaling", "Float8CurrentScaling", "Float8BlockScaling", "MXFP8BlockScaling", "NVFP4BlockScaling", "CustomRecipe"):
    belongs_to("transformer_engine.common.recipe")(type(recipe, (Recipe,), {}))


@belongs_to("transformer_engine.pytorch.cpu_offload", "transformer_engine.pytorch.cpu_offload_v1")
def get_cpu_offload_context(*_, **__):
    return contextlib.nullcontext(), lambda tensor: tensor


@belongs_to("transformer_engine.pytorch.distributed")
class CudaRNGStatesTracker:
    def __init__(self):
        self.states_ = {}

    def get_states(self):
        return self.states_

    def set_states(self, states):
        self.states_ = states

    def add(self, name, seed):
        self.states_[name] = seed

    def reset(self):
        self.states_ = {}

    @contextlib.contextmanager
    def fork(self, name="model-parallel-rng"):
        yield


@belongs_to("transformer_engine.pytorch.tensor", "transformer_engine.pytorch.quantized_tensor")
class QuantizedTensor(torch.Tensor):
    pass


# Megatron-LM reads these signatures.
@belongs_to("mamba_ssm.ops.triton.ssd_combined")
def mamba_chunk_scan_combined(*_, state_dtype=None, **__):
    raise NotOnThisMachine("mamba_chunk_scan_combined")


@belongs_to("mamba_ssm.ops.triton.ssd_combined")
def mamba_split_conv1d_scan_combined(*_, state_dtype=None, **__):
    raise NotOnThisMachine("mamba_split_conv1d_scan_combined")


def decorator(function=None, **_):
    """A decorator with or without arguments."""
    return function if callable(function) else decorator


@belongs_to("triton")
def autotune(*_, **__):
    return decorator


@belongs_to("triton")
def heuristics(*_, **__):
    return decorator


@belongs_to("triton.language")
class constexpr:  # pylint: disable=invalid-name
    def __init__(self, value):
        self.value = value

    def __bool__(self):
        return bool(self.value)


contents["triton"]["jit"] = decorator

for package, version in (("triton", "3.5.1"), ("transformer_engine", TRANSFORMER_ENGINE), ("mamba_ssm", "2.3.0"), ("causal_conv1d", "1.6.0")):
    contents.setdefault(package, {})["__version__"] = version


# --- Everything else ------------------------------------------------------------------------------------------------


class Anything:
    """A class of which Megatron-LM needs the name."""

    def __init__(self, *_, **__):
        pass

    def __class_getitem__(cls, _):
        return cls

    @classmethod
    def apply(cls, *_, **__):
        raise NotOnThisMachine(cls.__name__)


def kernel(name):
    def call(*_, **__):
        raise NotOnThisMachine(name)

    call.__name__ = name.rpartition(".")[2]
    return call


class StandInModule(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        whole = f"{self.__name__}.{name}"
        if whole in ABSENT:
            raise AttributeError(name)
        if any(module == whole or module.startswith(whole + ".") for module in contents):
            return importlib.import_module(whole)
        base = Layer if self.__name__ == "transformer_engine.pytorch.ops" else Anything
        thing = type(name, (base,), {}) if name.lstrip("_")[:1].isupper() else kernel(whole)
        setattr(self, name, thing)
        return thing


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, roots):
        self.roots = roots

    def find_spec(self, fullname, path=None, target=None):
        if fullname in ABSENT or not any(fullname == root or fullname.startswith(root + ".") for root in self.roots):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        module = StandInModule(spec.name)
        module.__path__ = []
        module.__dict__.update(contents.get(spec.name, {}))
        return module

    def exec_module(self, module):
        pass


def install(roots):
    sys.meta_path.insert(0, Finder(roots))
