"""tests/megatron/read_bridge_recipes.py on a small wheel: what recipes assign is recorded, what they need and nothing has is named."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "megatron" / "read_bridge_recipes.py"

CONFIG = """
class TrainingConfig:
    micro_batch_size: int = 1
    empty_unused_memory_level: int = 0
"""
PROVIDER = """
class GPTModelProvider:
    moe_grouped_gemm: bool = False
    seq_length: int = 1024
"""
CONVERTER = """
@MegatronModelBridge.register_bridge(source="X", target=GPTModel, model_type="x")
class XBridge(MegatronModelBridge):
    def provider_bridge(self, hf_pretrained):
        provider = super().provider_bridge(hf_pretrained)
        provider.add_bias_linear = False
        provider.num_layers = hf_pretrained.config.num_hidden_layers
        return provider
"""
RECIPES = """
import torch
from megatron.core.activations import squared_relu
from megatron.core.transformer.enums import AttnBackend
from megatron.bridge import AutoBridge
from megatron.bridge.peft.base import PEFT
from megatron.bridge.peft.lora import LoRA
from megatron.bridge.training.config import ConfigContainer, TrainingConfig

def _common():
    cfg = ConfigContainer(model=AutoBridge.from_hf_pretrained("owner/name").to_megatron_provider(load_weights=False),
                          train=TrainingConfig(global_batch_size=8))
    cfg.env_vars = {"B": 1, "A": "x"}
    return cfg

def m_pretrain_16gpu_h100_fp8cs_config() -> ConfigContainer:
    cfg = _common()
    cfg.train.micro_batch_size = 2 * cfg.train.micro_batch_size
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.activation_func = squared_relu
    cfg.model.attention_backend = AttnBackend.flash
    cfg.model.params_dtype = torch.bfloat16
    cfg.model.vocab_size = cfg.model.vocab_size
    return cfg

def m_peft_1gpu_b200_bf16_config(peft_scheme: str | PEFT = "lora") -> ConfigContainer:
    cfg = _common()
    cfg.peft = LoRA(dim=8, dropout=0.5)
    return cfg

def m_sft_8gpu_h100_bf16_config() -> ConfigContainer:
    cfg = _common()
    cfg.model.pipeline_model_parallel_size = cfg.model.num_layers // 4
    return cfg

def needs_argument_config(world) -> ConfigContainer:
    return _common()
"""


class ReadBridgeRecipes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        root = pathlib.Path(self.folder.name)
        for name, text in (("training/config.py", CONFIG), ("models/gpt_provider.py", PROVIDER), ("models/x/x_bridge.py", CONVERTER),
                           ("recipes/m/h100/m.py", RECIPES), ("recipes/m/__init__.py", ""), ("recipes/m/h100/__init__.py", "")):
            path = root / "megatron" / "bridge" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (root / "megatron_bridge-9.9.dist-info").mkdir()

    def read(self):
        done = subprocess.run([sys.executable, "-B", SCRIPT, self.folder.name], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def test_records_what_a_recipe_assigns(self):
        data = self.read()
        self.assertEqual(data["release"], "megatron-bridge 9.9")
        self.assertEqual(sorted(data["recipes"]), ["m_peft_1gpu_b200_bf16", "m_pretrain_16gpu_h100_fp8cs"])
        recipe = data["recipes"]["m_pretrain_16gpu_h100_fp8cs"]
        self.assertEqual((recipe["model"], recipe["task"], recipe["gpus"], recipe["gpu"], recipe["precision"]),
                         ("owner/name", "pretrain", 16, "H100", "fp8-current"))
        settings = {**data["bases"][recipe["base"]], **recipe["settings"]}
        self.assertEqual(settings["train.micro_batch_size"], 2)
        self.assertEqual(settings["model.tensor_model_parallel_size"], 4)
        self.assertEqual(settings["model.activation_func"], "squared_relu")
        self.assertEqual(settings["model.attention_backend"], "flash")
        self.assertEqual(settings["model.params_dtype"], "torch.bfloat16")
        self.assertEqual(settings["env_vars.A"], "x")
        self.assertNotIn("model.vocab_size", settings)

    def test_records_adapters(self):
        recipe = self.read()["recipes"]["m_peft_1gpu_b200_bf16"]
        self.assertEqual(recipe["task"], "peft")
        self.assertEqual(recipe["settings"]["peft.class"], "LoRA")
        self.assertEqual(recipe["settings"]["peft.dim"], 8)

    def test_names_what_it_cannot_record(self):
        missing = self.read()["not_recorded"]
        self.assertEqual(list(missing), ["m_sft_8gpu_h100_bf16"])
        self.assertIn("num_layers of owner/name", missing["m_sft_8gpu_h100_bf16"])

    def test_reads_the_constants_of_converters(self):
        self.assertEqual(self.read()["providers"], {"x": {"add_bias_linear": False}})

    def test_refuses_a_folder_that_is_no_wheel(self):
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run([sys.executable, SCRIPT, empty], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("holds no megatron_bridge-*.dist-info", done.stderr)


if __name__ == "__main__":
    unittest.main()
