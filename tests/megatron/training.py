"""A few training steps by Megatron-LM's core on CPU ranks, from the weights and on the data that `mgplan run` starts with.

    training.py JOBS.json    [{"words": options of Megatron-LM, "weights": mgplan's checkpoint file, "data": file, "world": ranks, "steps": number}, …]

Prints a line of JSON for each job: the losses (mean over the tokens of the batch) and the gradient norm of each step. Layers are Megatron-LM's local
ones, gloo carries the data, each rank is a process. The bytes of `data` are ids; it holds the samples of one step, which every step trains on.
"""

import contextlib
import copy
import io
import json
import os
import pickle
import re
import socket
import sys
import traceback
from pathlib import Path

import forks
import seeded_weights
import stand_ins

os.environ["NO_VCS_VERSION"] = "1"
sys.path.insert(0, os.environ["MEGATRON_ROOT"])
stand_ins.install(device="cpu", communicates=True)

import torch  # noqa: E402
import torch.nn.functional as functional  # noqa: E402

with contextlib.redirect_stdout(io.StringIO()):
    from megatron.core import mpu, num_microbatches_calculator, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.models.backends import LocalSpecProvider
    from megatron.core.models.gpt import experimental_attention_variant_module_specs as variants
    from megatron.core.models.gpt import gpt_layer_specs
    from megatron.core.optimizer import OptimizerConfig, clip_grads, get_megatron_optimizer, optimizer
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.ssm import gated_delta_net
    from megatron.core.transformer import multi_latent_attention, transformer_block
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
    from megatron.core.transformer.transformer_layer import get_transformer_layer_offset
    from megatron.training import argument_utils, arguments, global_vars, initialize
    from megatron.training.models.dist_utils import build_virtual_pipeline_stages
from stand_ins import gpu  # noqa: E402

gpu.keep_no_random_states(tensor_parallel.random)
# Kernels that need a GPU, off.
LOCAL = """--transformer-impl local --no-persist-layer-norm --no-masked-softmax-fusion --no-gradient-accumulation-fusion --no-rope-fusion
    --no-bias-dropout-fusion --no-bias-swiglu-fusion --distributed-backend gloo --tokenizer-type NullTokenizer --mock-data --train-iters 4 --lr 1e-3
    --attention-backend unfused --no-check-for-nan-in-loss-and-grad""".split()


# --- What Megatron-LM does on a GPU alone --------------------------------------------------------------------------


def clip_by_total_norm(parameters, max_norm, total_norm, use_decoupled_grad=False):
    """As clip_grad_by_total_norm_fp32, without its assertion that gradients are on a GPU."""
    factor = max_norm / (total_norm + 1.0e-6)
    for parameter in parameters:
        gradient = parameter.decoupled_grad if use_decoupled_grad else parameter.grad
        if gradient is not None and factor < 1.0:
            gradient.mul_(factor)


def norm_of(gradients, norm_type=2, grad_stats_parallel_group=None):
    """As get_grad_norm_fp32 for the norm of order 2, without its kernel."""
    assert norm_type == 2
    squares = sum((gradient.float().pow(2).sum() for gradient in ([gradients] if isinstance(gradients, torch.Tensor) else gradients)), torch.zeros(()))
    torch.distributed.all_reduce(squares, group=grad_stats_parallel_group)
    return squares.sqrt().item()


optimizer.clip_grad_by_total_norm_fp32 = clip_grads.clip_grad_by_total_norm_fp32 = clip_by_total_norm
optimizer.get_grad_norm_fp32 = clip_grads.get_grad_norm_fp32 = norm_of


# --- Weights --------------------------------------------------------------------------------------------------------

# mgplan names a norm like Transformer Engine, as part of the linear layer that follows; local layers have a module for it.
NORMS = {"self_attention.linear_qkv.layer_norm_": "input_layernorm.", "self_attention.in_proj.layer_norm_": "input_layernorm.",
         "mlp.linear_fc1.layer_norm_": "pre_mlp_layernorm.", "self_attention.linear_q_up_proj.layer_norm_": "self_attention.q_layernorm.",
         "self_attention.linear_kv_up_proj.layer_norm_": "self_attention.kv_layernorm."}


def local_name(name, layers):
    """Returns Megatron-LM's name of a parameter of mgplan, with local layers. Expert biases of multi-token prediction carry numbers of further decoder layers."""
    number = re.match(r"decoder\.layers\.(\d+)", name)
    if number and int(number[1]) >= layers:
        name = f"mtp.layers.{int(number[1]) - layers}.transformer_layer" + name[number.end():]
    for fused, apart in NORMS.items():
        name = name.replace(fused, apart)
    return re.sub(r"experts\.(linear_fc.)\.(weight|bias)(\d+)", r"experts.local_experts.\3.\1.\2", name).replace(".transformer_layer.", ".mtp_model_layer.")


def with_neighbours(name, tensor, config):
    """mgplan rotates a head's halves, Megatron-LM's latent attention its neighbouring values: the same rows in another order (docs/layers.md)."""
    part = config.qk_pos_emb_head_dim
    heads = {"linear_q_up_proj.weight": config.num_attention_heads, "linear_q_proj.weight": config.num_attention_heads, "linear_kv_down_proj.weight": 1}
    for ending, number in heads.items():
        if name.endswith(ending):
            unrotated, rotated = tensor.view(number, -1, tensor.shape[1]).split([tensor.shape[0] // number - part, part], dim=1)
            rotated = torch.stack(rotated.chunk(2, dim=1), dim=2).flatten(1, 2)
            return torch.cat([unrotated, rotated], dim=1).reshape(tensor.shape)
    return tensor


class Weights:
    """Tensors of mgplan's checkpoint for one rank of Megatron-LM."""

    def __init__(self, path, config):
        self.tensors = {}
        for name, data, place in seeded_weights.read(path):
            tensor = torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(int(place["rows"]), int(place["columns"]))
            if config.multi_latent_attention:
                tensor = with_neighbours(name, tensor, config)
            self.tensors[local_name(name, config.num_layers)] = tensor, place
        self.tensors.setdefault("output_layer.weight", self.tensors["embedding.word_embeddings.weight"])  # a copy on the last of several stages

    def part(self, name, shape):
        """Returns this rank's part of a tensor. Each block of rows (q, k and v; gate and up) is divided by itself."""
        whole, place = self.tensors[name]
        ranks, rank = mpu.get_tensor_model_parallel_world_size(), mpu.get_tensor_model_parallel_rank()
        if ".local_experts." in name:
            ranks, rank = mpu.get_expert_tensor_parallel_world_size(), mpu.get_expert_tensor_parallel_rank()
        axis = int(place["axis"])
        if axis < 0:
            return whole.reshape(shape)
        stride = int(place["stride"])
        blocks = [int(rows) for rows in place["blocks"].split(",")] if "blocks" in place else [whole.shape[0] // stride] * stride
        blocks = whole.split(blocks) if axis == 0 else [whole]
        return torch.cat([block.chunk(ranks, axis)[rank] for block in blocks]).reshape(shape)

    def fill(self, model, first_expert):
        """Fills the chunk `model`. Its names number layers and experts from the first of this rank on."""
        first_layer = model.decoder.layers[0].layer_number - 1 if len(model.decoder.layers) else 0
        numbers = {r"^decoder\.layers\.(\d+)": first_layer, r"local_experts\.(\d+)": first_expert}

        def shifted(found, by):
            return found[0][:found.start(1) - found.start()] + str(int(found[1]) + by)

        with torch.no_grad():
            for name, tensor in [*model.named_parameters(), *((name, buffer) for name, buffer in model.named_buffers() if name.endswith("expert_bias"))]:
                for pattern, first in numbers.items():
                    name = re.sub(pattern, lambda found, by=first: shifted(found, by), name)
                tensor.copy_(self.part(name, tensor.shape))


# --- Layers ---------------------------------------------------------------------------------------------------------


class Attention(DotProductAttention):
    """Megatron-LM's local attention. Its constructor lacks the widths of keys and values that latent attention passes; its forward takes any."""

    def __init__(self, *arguments, k_channels=None, v_channels=None, **settings):
        super().__init__(*arguments, **settings)
        if v_channels:
            self.hidden_size_per_partition = self.num_attention_heads_per_partition * v_channels


class Norm:
    """A norm like WrappedTorchNorm's, which refuses sequence parallelism. Megatron-LM sums gradients of marked parameters over tp."""

    def __new__(cls, config, hidden_size, eps=1e-5, **_):
        norm = (torch.nn.RMSNorm if config.normalization == "RMSNorm" else torch.nn.LayerNorm)(hidden_size, eps=eps)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel
        return norm


class WholeLinear(torch.nn.Module):
    """A linear layer that each tensor-parallel rank holds in full, like Transformer Engine's with parallel_mode "duplicated"."""

    def __init__(self, inputs, outputs, *, config, **_):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(outputs, inputs))
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        return functional.linear(x, self.weight), None


local_submodules = gpt_layer_specs.get_gpt_layer_local_submodules


def with_whole_down_projections(*arguments, **settings):
    """Replaces latent attention's local down-projections. These are divided over tp, and the gradient of the rotated key is then not summed over tp."""
    layer = local_submodules(*arguments, **settings)
    if hasattr(layer.self_attention.submodules, "linear_kv_down_proj"):
        layer.self_attention.submodules.linear_q_down_proj = layer.self_attention.submodules.linear_kv_down_proj = WholeLinear
    return layer


gpt_layer_specs.get_gpt_layer_local_submodules = with_whole_down_projections
multi_latent_attention.TELinear = WholeLinear
LocalSpecProvider.core_attention = lambda _: Attention
LocalSpecProvider.layer_norm = lambda *_, **__: Norm
gpt_layer_specs.LNImpl = transformer_block.LayerNormImpl = Norm
all_to_all_single = torch.distributed.all_to_all_single


def all_to_all_with_lists(output, tensor, output_split_sizes=None, input_split_sizes=None, **settings):
    """gloo takes sizes as lists alone. On a GPU the token dispatcher makes these lists itself."""
    sizes = [list(map(int, sizes)) if sizes is not None else None for sizes in (output_split_sizes, input_split_sizes)]
    return all_to_all_single(output, tensor, *sizes, **settings)


torch.distributed.all_to_all_single = all_to_all_with_lists
reduce = tensor_parallel.mappings._reduce
# A group of one rank returns its input, which torch does not let the MLP change in place (core/transformer/mlp.py:354).
tensor_parallel.mappings._reduce = lambda tensor, group: reduce(tensor, group).clone()


def with_delta_nets(model, vp_stage=None):
    """Returns the layers of a model with gated delta nets: Megatron-LM's modules with local norms and linear layers. Megatron-LM composes
    them for Transformer Engine alone (_get_backend_spec_provider in experimental_attention_variant_module_specs.py)."""
    config = model.transformer
    layer = gpt_layer_specs.get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization=config.normalization)
    delta = copy.deepcopy(layer)
    delta.submodules.self_attention = ModuleSpec(module=gated_delta_net.GatedDeltaNet, submodules=gated_delta_net.GatedDeltaNetSubmodules(
        in_proj=tensor_parallel.ColumnParallelLinear, out_norm=Norm, out_proj=tensor_parallel.RowParallelLinear))
    layers = [delta if is_delta else layer for is_delta in variants.get_linear_attention_pattern(config)]
    first = get_transformer_layer_offset(config, vp_stage=vp_stage)
    return TransformerBlockSubmodules(layer_specs=layers[first:first + get_num_layers_to_build(config, vp_stage=vp_stage)], layer_norm=Norm)


# --- Training -------------------------------------------------------------------------------------------------------


def l2norm(vectors, eps=1e-6):
    return vectors * torch.rsqrt(vectors.square().sum(dim=-1, keepdim=True) + eps)


def start(words):
    sys.argv = ["pretrain_gpt.py", *words, *LOCAL]
    with contextlib.redirect_stdout(io.StringIO()):
        found = arguments.parse_args()
        arguments.validate_args(found, {})
        global_vars.set_global_variables(found, build_tokenizer=False)
        model = argument_utils.gpt_config_from_args(found)
        model.transformer.perform_initialization = False
        if model.transformer.experimental_attention_variant:
            model.transformer_layer_spec = with_delta_nets
            model.transformer.deterministic_mode = True  # computes delta rule and convolution with torch
            # This mode calls nothing of fla but its L2 norm.
            gated_delta_net.common.HAVE_FLA, gated_delta_net.common.l2norm = True, l2norm
        torch.distributed.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
        initialize._initialize_distributed(None, None, None)
        initialize._set_random_seed(1)
    return found, model


def batches(tokens, found):
    """Microbatches of this data-parallel rank: {"tokens", "labels"}."""
    length, micro = found.seq_length, found.micro_batch_size
    samples = torch.stack([tokens[i * length:i * length + length + 1] for i in range(found.global_batch_size)])
    mine = samples.chunk(found.data_parallel_size)[mpu.get_data_parallel_rank()]
    return [{"tokens": some[:, :-1], "labels": some[:, 1:]} for some in mine.split(micro)]


def forward_step(iterator, model):
    batch = next(iterator)
    length = batch["tokens"].shape[1]
    mask = torch.ones(1, 1, length, length).tril() < 0.5
    losses = model(batch["tokens"], torch.arange(length).expand_as(batch["tokens"]), mask, labels=batch["labels"])
    return losses, lambda output: (output.float().mean(), {"loss": output.float().mean().detach()})


def losses_of(found, reduced):
    """Returns the losses of a step: the model's, and those of multi-token prediction. Called on the last pipeline stage."""
    loss = torch.stack([each["loss"] for each in reduced]).mean()
    torch.distributed.all_reduce(loss, group=mpu.get_data_parallel_group())
    MTPLossLoggingHelper.reduce_metrics_in_tracker()
    further = MTPLossLoggingHelper.tracker.get("loss_values", torch.zeros(0)) / num_microbatches_calculator.get_num_microbatches()
    return {"loss": loss.item() / found.data_parallel_size, "mtp_losses": further.tolist()}


def train(job):
    found, model_config = start(job["words"])
    tokens = torch.tensor(list(Path(job["data"]).read_bytes()), dtype=torch.int64)
    config = model_config.transformer
    collection = ProcessGroupCollection.use_mpu_process_groups()
    chunks = build_virtual_pipeline_stages(model_config.get_builder_cls()(model_config).build_model, collection, config.virtual_pipeline_model_parallel_size)
    first_expert = mpu.get_expert_model_parallel_rank() * (config.num_moe_experts or 0) // mpu.get_expert_model_parallel_world_size()
    for chunk in chunks:
        Weights(job["weights"], config).fill(chunk, first_expert)
    chunks = [DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True, overlap_grad_reduce=False), chunk) for chunk in chunks]
    step = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-3, min_lr=1e-3, weight_decay=0.01, clip_grad=1.0), chunks)
    for group in step.param_groups:  # as OptimizerParamScheduler does
        group["lr"], group["weight_decay"] = 1e-3, 0.01 * group["wd_mult"]
    config.finalize_model_grads_func = finalize_model_grads
    results = []
    for _ in range(job["steps"]):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        step.zero_grad()
        MTPLossLoggingHelper.clean_metrics_in_tracker()
        reduced = schedules.get_forward_backward_func()(
            forward_step_func=forward_step, data_iterator=[iter(batches(tokens, found)) for _ in chunks], model=chunks,
            num_microbatches=num_microbatches_calculator.get_num_microbatches(), seq_length=found.seq_length, micro_batch_size=found.micro_batch_size,
            forward_only=False)
        _, norm, _ = step.step()
        if mpu.is_pipeline_last_stage():
            results.append(losses_of(found, reduced) | {"grad_norm": float(norm)})
    return results


def train_on(rank):
    """train() in a process of its own."""
    job, number, port = rank
    os.dup2(2, 1)  # gloo and Megatron-LM print
    os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(job["world"]), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        with gpu.WithoutGpu():
            return train(job)
    except BaseException:
        traceback.print_exc()
        raise


def main():
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    for job in json.loads(Path(sys.argv[1]).read_text()):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = [forks.start(train_on, (job, rank, port)) for rank in range(job["world"])]
        for child, pipe in ranks:  # the last rank belongs to the last pipeline stage
            with os.fdopen(pipe, "rb") as answer:
                result = answer.read()
            if os.waitpid(child, 0)[1]:
                result = None
        print(json.dumps(pickle.loads(result) if result else None), flush=True)


if __name__ == "__main__":
    main()
