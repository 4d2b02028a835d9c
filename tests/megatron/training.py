"""A few training steps by Megatron-LM's core on CPU ranks, from the weights and on the data that `mgplan run` starts with.

    training.py MEGATRON_WORDS.json WEIGHTS.safetensors TOKENS STEPS    (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun sets them)

Rank 0 prints JSON: the loss (mean over the tokens of the batch) and the gradient norm of each step. Layers are Megatron-LM's local ones,
gloo carries the data. TOKENS is a file whose bytes are ids; it holds the samples of one step, which every step trains on.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path

import stand_ins

os.environ["NO_VCS_VERSION"] = "1"
sys.path.insert(0, os.environ["MEGATRON_ROOT"])
stand_ins.install(device="cpu", communicates=True)

import torch  # noqa: E402
import torch.nn.functional as functional  # noqa: E402

with contextlib.redirect_stdout(io.StringIO()):
    from megatron.core import mpu, num_microbatches_calculator, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.optimizer import OptimizerConfig, clip_grads, get_megatron_optimizer, optimizer
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.process_groups_config import ProcessGroupCollection
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


def read_safetensors(path):
    data = Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    body = bytearray(data[8 + size:])
    return {name: torch.frombuffer(body, dtype=torch.float32, count=(entry["data_offsets"][1] - entry["data_offsets"][0]) // 4,
                                   offset=entry["data_offsets"][0]).reshape(entry["shape"]) for name, entry in header.items()}


def part(tensor, axis, ranks, rank):
    return tensor.chunk(ranks, axis)[rank]


class Weights:
    """Published names to the tensors of one rank of Megatron-LM."""

    def __init__(self, tensors, config):
        self.tensors, self.config = tensors, config
        self.ranks, self.rank = mpu.get_tensor_model_parallel_world_size(), mpu.get_tensor_model_parallel_rank()

    def queries_keys_values(self, layer):
        """Megatron-LM keeps the queries of a group in front of its key and value."""
        groups, width = self.config.num_query_groups, self.config.kv_channels
        parts = [self.tensors[f"{layer}.self_attn.{name}_proj.weight"].reshape(groups, -1, self.config.hidden_size) for name in "qkv"]
        assert parts[1].shape[1] == width
        return torch.cat(parts, dim=1).reshape(-1, self.config.hidden_size)

    def gated(self, gate, up):
        return torch.cat([part(self.tensors[gate], 0, self.ranks, self.rank), part(self.tensors[up], 0, self.ranks, self.rank)])

    def of(self, name):
        """The part of the parameter `name` that this rank holds."""
        whole = {"embedding.word_embeddings.weight": ("model.embed_tokens.weight", 0), "output_layer.weight": ("lm_head.weight", 0),
                 "decoder.final_layernorm.weight": ("model.norm.weight", None)}.get(name)
        if whole is None:
            _, _, number, rest = name.split(".", 3)
            layer = f"model.layers.{number}"
            if rest == "self_attention.linear_qkv.weight":
                return part(self.queries_keys_values(layer), 0, self.ranks, self.rank)
            if rest == "mlp.linear_fc1.weight":
                return self.gated(f"{layer}.mlp.gate_proj.weight", f"{layer}.mlp.up_proj.weight")
            if rest.startswith("mlp.experts.local_experts."):
                expert = int(rest.split(".")[3]) + mpu.get_expert_model_parallel_rank() * self.config.num_moe_experts // mpu.get_expert_model_parallel_world_size()
                expert = f"{layer}.block_sparse_moe.experts.{expert}"
                return torch.cat([self.tensors[f"{expert}.w1.weight"], self.tensors[f"{expert}.w3.weight"]]) if "fc1" in rest else self.tensors[f"{expert}.w2.weight"]
            whole = {"input_layernorm.weight": (f"{layer}.input_layernorm.weight", None), "pre_mlp_layernorm.weight": (f"{layer}.post_attention_layernorm.weight", None),
                     "self_attention.linear_proj.weight": (f"{layer}.self_attn.o_proj.weight", 1), "mlp.linear_fc2.weight": (f"{layer}.mlp.down_proj.weight", 1),
                     "self_attention.q_layernorm.weight": (f"{layer}.self_attn.q_norm.weight", None), "self_attention.k_layernorm.weight": (f"{layer}.self_attn.k_norm.weight", None),
                     "mlp.router.weight": (f"{layer}.block_sparse_moe.gate.weight", None)}[rest]
        published, axis = whole
        tensor = self.tensors[published]
        return tensor if axis is None else part(tensor, axis, self.ranks, self.rank)

    def fill(self, model):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                tensor = self.of(name)
                assert parameter.shape == tensor.shape, (name, parameter.shape, tensor.shape)
                parameter.copy_(tensor)


# --- Training -------------------------------------------------------------------------------------------------------


def start(words):
    sys.argv = ["pretrain_gpt.py", *words, *LOCAL]
    with contextlib.redirect_stdout(io.StringIO()):
        found = arguments.parse_args()
        arguments.validate_args(found, {})
        global_vars.set_global_variables(found, build_tokenizer=False)
        model = argument_utils.gpt_config_from_args(found)
        model.transformer.perform_initialization = False
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


def train(words, weights, tokens, steps):
    found, model_config = start(words)
    config = model_config.transformer
    collection = ProcessGroupCollection.use_mpu_process_groups()
    chunks = build_virtual_pipeline_stages(model_config.get_builder_cls()(model_config).build_model, collection, None)
    Weights(read_safetensors(weights), config).fill(chunks[0])
    chunks = [DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True, overlap_grad_reduce=False), chunk) for chunk in chunks]
    step = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-3, min_lr=1e-3, weight_decay=0.01, clip_grad=1.0), chunks)
    for group in step.param_groups:  # as OptimizerParamScheduler does
        group["lr"], group["weight_decay"] = 1e-3, 0.01 * group["wd_mult"]
    config.finalize_model_grads_func = finalize_model_grads
    results = []
    for _ in range(steps):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        step.zero_grad()
        reduced = schedules.get_forward_backward_func()(
            forward_step_func=forward_step, data_iterator=iter(batches(tokens, found)), model=chunks, num_microbatches=num_microbatches_calculator.get_num_microbatches(),
            seq_length=found.seq_length, micro_batch_size=found.micro_batch_size, forward_only=False)
        _, norm, _ = step.step()
        loss = torch.stack([each["loss"] for each in reduced]).mean()
        torch.distributed.all_reduce(loss, group=mpu.get_data_parallel_group())
        results.append({"loss": loss.item() / found.data_parallel_size, "grad_norm": float(norm)})
    return results


def main():
    words, weights, data, steps = sys.argv[1:5]
    tokens = torch.tensor(list(Path(data).read_bytes()), dtype=torch.int64)
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    with gpu.WithoutGpu():
        results = train(json.loads(Path(words).read_text()), weights, tokens, int(steps))
    if int(os.environ["RANK"]) == 0:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
