"""Writes tests/golden/data/layer_wise_buffers.json: where Megatron-LM's layer-wise optimizer puts matrices in a gradient buffer.

MEGATRON_ROOT is a checkout of main at d98e8a64; release 0.19.2 has another rule.
MEGATRON_ROOT=~/Megatron-LM build/megatron/environment/bin/python tests/megatron/layer_wise_vectors.py
"""

import json
import random
import types
from pathlib import Path

import oracle
from megatron.core.optimizer.layer_wise_optimizer import LayerWiseDistributedOptimizer

OUTPUT = Path(__file__).resolve().parent.parent / "golden" / "data" / "layer_wise_buffers.json"


def drawn_case(draw):
    hidden, ffn = draw.choice([64, 96, 256]), draw.choice([160, 512, 1000])
    layer = [[hidden, hidden], [3 * hidden, hidden], [2 * ffn, hidden], [hidden, ffn]]
    shapes = [list(shape) for _ in range(draw.randint(1, 8)) for shape in draw.sample(layer, draw.randint(1, 4))]
    return {"shapes": shapes, "ranks": draw.choice([2, 3, 4, 8, 16]), "bucket_size": draw.choice([None, 1, 50_000, 300_000]), "pad_buckets": draw.random() < 0.2}


def laid_out(case):
    parameters = [oracle.torch.nn.Parameter(oracle.torch.empty(shape, device="meta")) for shape in case["shapes"]]
    layout = LayerWiseDistributedOptimizer._compute_per_buffer_param_layout(  # pylint: disable=protected-access
        parameters, case["bucket_size"], case["ranks"], types.SimpleNamespace(pad_buckets_for_high_nccl_busbw=case["pad_buckets"]))
    return case | {"places": [list(layout.param_index_map[parameter]) for parameter in parameters], "buckets": [list(bucket) for bucket in layout.bucket_indices]}


def main():
    draw = random.Random(20)
    cases = [laid_out(drawn_case(draw)) for _ in range(40)]
    OUTPUT.write_text("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
