"""Puts a training command through the code of Megatron-LM that runs before the first kernel, on a CPU.

`judge(Command(...))` runs parser, validate_args, configurations, the configuration container, the calculator of microbatches, rank groups,
the chunks of some pipeline ranks on the meta device and the entry checks of the schedule, in the order of pretrain_gpt.py, each by
Megatron-LM's own functions, and says where it stopped. Importing this module imports megatron (some 10 s), from the folder that
`MEGATRON_ROOT` names; tests/megatron/server.py pays for that once.
"""

import contextlib
import dataclasses
import inspect
import io
import logging
import os
import sys
import traceback
import warnings
from pathlib import Path

import stand_ins

os.environ["NO_VCS_VERSION"] = "1"  # the version of this repository is none of Megatron-LM's
ROOT = Path(os.environ["MEGATRON_ROOT"]).resolve()
sys.path.insert(0, str(ROOT))
logging.disable(logging.CRITICAL)
stand_ins.install()

import torch  # noqa: E402
import torch._dynamo  # noqa: E402  (torch loads it at the first call of some operators, here before the fork)

warnings.simplefilter("ignore")
with contextlib.redirect_stdout(io.StringIO()):
    from megatron.core import mpu, num_microbatches_calculator, package_info, tensor_parallel
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.transformer import TransformerConfig  # noqa: F401  (for figures.py)
    from megatron.core.transformer.moe import token_dispatcher
    from megatron.training import argument_utils, arguments, global_vars, initialize
    from megatron.training import training  # noqa: F401  (pays for its import before the fork)
    from megatron.training.models import gpt, hybrid  # noqa: F401
    from megatron.training.models import dist_utils
    from megatron.training.models.dist_utils import build_virtual_pipeline_stages

from stand_ins import gpu, groups  # noqa: E402
from stand_ins.packages import NotOnThisMachine  # noqa: E402

torch.set_num_threads(1)
gpu.keep_no_random_states(tensor_parallel.random)
with gpu.WithoutGpu():
    torch.arange(2, device="cuda")  # loads what torch needs at the first such call, before the fork
tensor_parallel.layers._grad_accum_fusion_available = True
for name in ("fused_dispatch", "fused_combine", "hybrid_ep_dispatch", "hybrid_ep_combine", "set_deepep_num_sms", "init_hybrid_ep_buffer"):
    if getattr(token_dispatcher, name, "absent") is None:  # DeepEP is not installed
        setattr(token_dispatcher, name, lambda *_, **__: None)

# Variables that Megatron-LM or its kernels read; a command's environment holds its own and none of the caller's.
READ_VARIABLES = ("CUDA_", "CUBLAS_", "NVTE_", "NCCL_", "PYTORCH_", "TORCH_", "WORLD_SIZE", "RANK", "LOCAL_RANK")


@dataclasses.dataclass
class Command:
    """A training job as its launcher starts it. `capability` is the compute capability of the GPUs."""

    words: list
    world: int
    capability: tuple = (9, 0)
    environment: dict = dataclasses.field(default_factory=dict)
    pipeline_ranks: str = "some"  # those whose chunks are built: "some" (first, middle, last), "all" or "none"
    wants: tuple = ()  # facts of the built chunks: "parameters", and "buffers" of gradients too


@dataclasses.dataclass
class Verdict:
    """`phase` and `where` (file:line of Megatron-LM) say where a command that is not accepted stopped; `undecided` is true where that was
    a stand-in's doing."""

    accepted: bool
    phase: str = ""
    where: str = ""
    message: str = ""
    undecided: bool = False
    facts: dict = dataclasses.field(default_factory=dict)

    def line(self):
        if self.accepted:
            return "accepted"
        return f"{'undecided' if self.undecided else 'refused'} in {self.phase}{' at ' + self.where if self.where else ''}: {self.message}"


def version():
    return package_info.__version__


class Reached(Exception):
    """The schedule came to its first forward pass."""


class Refused(Exception):
    """Megatron-LM ended the process instead of raising."""


def last_line(stream):
    lines = stream.getvalue().strip().splitlines()
    return lines[-1] if lines else "the process ends"


def place_of(error):
    """File and line of the innermost frame in Megatron-LM, or of the innermost at all."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        with contextlib.suppress(ValueError):
            return f"{Path(frame.filename).resolve().relative_to(ROOT / 'megatron')}:{frame.lineno}"
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"


def is_ours(error):
    """Returns true if a stand-in raised."""
    if isinstance(error, (NotOnThisMachine, ImportError)) or "stand_ins." in str(error):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return "/stand_ins/" in frames[-1].filename and not isinstance(error, AssertionError)


def set_environment(command):
    for variable in list(os.environ):
        if variable.startswith(READ_VARIABLES):
            del os.environ[variable]
    os.environ.update({name: str(value) for name, value in command.environment.items()})
    os.environ.update(WORLD_SIZE=str(command.world), RANK="0", LOCAL_RANK="0")
    gpu.set_capability(*command.capability)
    groups.pose_as(0, command.world)


class Job:
    """One command on its way. Each phase is a method; a process judges one command, since Megatron-LM keeps global state."""

    def __init__(self, command):
        self.command = command
        self.facts = {}
        self.phase = ""

    def parse(self):
        sys.argv = ["pretrain_gpt.py", *map(str, self.command.words)]
        self.arguments = arguments.parse_args()

    def validate(self):
        arguments.validate_args(self.arguments, {"tokenizer_type": "GPT2BPETokenizer"})

    def configure(self):
        from_arguments = argument_utils.gpt_config_from_args if self.arguments.hybrid_layer_pattern is None else argument_utils.hybrid_config_from_args
        self.model = from_arguments(self.arguments)

    def contain(self):
        self.container = argument_utils.pretrain_cfg_container_from_args(self.arguments, self.model)

    def count_microbatches(self):
        global_vars.set_global_variables(self.arguments, build_tokenizer=False)
        self.microbatches = num_microbatches_calculator.get_num_microbatches()
        num_microbatches_calculator.update_num_microbatches(0, consistency_check=not self.arguments.decrease_batch_size_if_needed)
        self.facts.update(microbatches=self.microbatches, dp=self.arguments.data_parallel_size, vpp=self.arguments.virtual_pipeline_model_parallel_size)

    def group(self):
        self.pose_as(0)

    def pose_as(self, rank):
        groups.pose_as(rank)
        mpu.destroy_model_parallel()
        self.arguments.rank = rank
        initialize._initialize_distributed(None, None, None)
        initialize._set_random_seed(self.arguments.seed, self.arguments.data_parallel_random_init, self.arguments.te_rng_tracker,
                                    self.arguments.inference_rng_tracker, use_cudagraphable_rng=self.arguments.cuda_graph_impl != "none")

    def build(self):
        """Builds the chunks of some pipeline ranks; those of rank 0 come last and stay."""
        self.model.transformer.perform_initialization = False
        pipeline = list(mpu.get_pipeline_model_parallel_group().ranks)
        chosen = self.command.pipeline_ranks
        stages = {"some": sorted({0, len(pipeline) // 2, len(pipeline) - 1}), "all": range(len(pipeline)), "none": []}[chosen]
        for stage in sorted(stages, reverse=True):
            self.pose_as(pipeline[stage])
            groups_of_stage = ProcessGroupCollection.use_mpu_process_groups()
            with torch.device(gpu.DEVICE):  # some parameters are made on the CPU and moved
                self.chunks = build_virtual_pipeline_stages(self.model.get_builder_cls()(self.model).build_model, groups_of_stage,
                                                            self.model.transformer.virtual_pipeline_model_parallel_size)
            if self.command.wants:
                self.describe(stage, pipeline[stage], groups_of_stage)
        if stages and groups.world["rank"] != 0:
            self.pose_as(0)

    def describe(self, stage, rank, groups_of_stage):
        """Notes parameters and, where Megatron-LM's own DDP wraps the chunks, its buffers."""
        facts = {"rank": rank, "parameters": [sum(parameter.nelement() for parameter in chunk.parameters()) for chunk in self.chunks]}
        self.facts.setdefault("stages", {})[stage] = facts
        dist = self.container.dist
        if "buffers" not in self.command.wants or dist.use_megatron_fsdp or dist.use_torch_fsdp2:
            return
        # As setup_model_and_optimizer (training.py) passes them; 0.19.2 has no layout of its own for layer-wise optimizers there.
        layer_wise = {"use_layer_wise_distributed_optimizer": getattr(self.arguments, "use_layer_wise_distributed_optimizer", False),
                      "use_layer_wise_param_layout": getattr(self.arguments, "use_layer_wise_param_layout", True)}
        wrap = dist_utils.prepare_existing_model_chunks_for_distributed_training
        wrapped = wrap(self.chunks, self.model.transformer, groups_of_stage, ddp_config=self.container.ddp,
                       overlap_param_gather_with_optimizer_step=self.container.optimizer.overlap_param_gather_with_optimizer_step,
                       **{name: value for name, value in layer_wise.items() if name in inspect.signature(wrap).parameters})
        facts["chunks"] = [[buffer_of(buffer, chunk) for buffer in chunk.buffers + chunk.expert_parallel_buffers] for chunk in wrapped]
        facts["gradient_bytes"] = sum(buffer["gradient_bytes"] for chunk in facts["chunks"] for buffer in chunk)

    def enter_schedule(self):
        if self.arguments.skip_train or self.command.pipeline_ranks == "none":
            return
        config = self.model.transformer
        for hook in ("timers", "finalize_model_grads_func", "no_sync_func", "grad_sync_func", "param_sync_func"):
            setattr(config, hook, None)
        is_interleaved = len(self.chunks) > 1
        try:
            schedules.get_forward_backward_func()(
                forward_step_func=come_to_forward, data_iterator=[None] * len(self.chunks) if is_interleaved else None,
                model=self.chunks if is_interleaved else self.chunks[0], num_microbatches=self.microbatches, seq_length=self.arguments.seq_length,
                micro_batch_size=self.arguments.micro_batch_size, forward_only=False)
        except Reached:
            pass

    PHASES = (("parser", parse), ("validate_args", validate), ("configuration", configure), ("container", contain), ("microbatches", count_microbatches),
              ("groups", group), ("model", build), ("schedule", enter_schedule))

    def run(self):
        for self.phase, step in self.PHASES:
            step(self)


def come_to_forward(*_, **__):
    raise Reached


def buffer_of(buffer, chunk):
    """Places of parameters in a gradient buffer: {"expert", "dp", "numel", "gradient_bytes", "params": [(start, end, bucket)]}."""
    return {"expert": buffer in chunk.expert_parallel_buffers, "dp": buffer.data_parallel_world_size, "numel": buffer.numel,
            "gradient_bytes": buffer.numel * buffer.grad_dtype.itemsize, "params": [tuple(map(int, place[:3])) for place in buffer.param_index_map.values()]}


def judge(command):
    """Returns the verdict. Leaves Megatron-LM's global state as the command made it: one command for each process."""
    set_environment(command)
    job = Job(command)
    out, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), gpu.WithoutGpu():
            try:
                job.run()
            except SystemExit as error:
                raise Refused(last_line(errors) if errors.getvalue().strip() else last_line(out)) from error
    except Refused as error:
        return Verdict(False, job.phase, "", str(error)[:400], False, job.facts)
    except Exception as error:  # pylint: disable=broad-except
        return Verdict(False, job.phase, place_of(error), f"{type(error).__name__}: {error}"[:400], is_ours(error), job.facts)
    return Verdict(True, facts=job.facts)
