"""The command that the package is compared with, and where things are (test_the_wheel.py sets it)."""

import json
import os
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2]


class Said:
    """What the command said."""

    def __init__(self, words, **options):
        done = subprocess.run([os.environ["MGPLAN_PROGRAM"], *map(str, words)], capture_output=True, text=True, check=False, **options)
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def problems(self):
        """Its refusals, one a line; further lines of one belong to it."""
        assert self.code == 2, (self.code, self.err)
        return self.err.removeprefix("mgplan: ").rstrip("\n").split("\nmgplan: ")


@pytest.fixture
def command():
    return lambda *words, **options: Said(words, **options)


def without_clock(text):
    """An answer without what differs between two runs of one program: the seconds that the search took."""
    answer = json.loads(text)
    for name in ("seconds", "evaluate_seconds"):
        answer.get("search", {}).pop(name, None)
    return answer


LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "vocab_size": 128256, "intermediate_size": 14336, "max_position_embeddings": 8192, "rms_norm_eps": 1e-05,
         "tie_word_embeddings": False, "architectures": ["LlamaForCausalLM"]}

MEGATRON = """--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 8192
--micro-batch-size 4 --global-batch-size 128 --tensor-model-parallel-size 2 --vocab-size 32000 --swiglu --bf16 --lr 1e-4
"""
