"""What Megatron-Bridge imports beside Megatron-LM, in name: packages of models, data sets and logs. Its packages of model families would import
every network of Hugging Face's; they are left empty, and the providers of GPT-like models come from their own files."""

import importlib
import sys
import types

from stand_ins import packages

ROOTS = {"accelerate", "comet_ml", "datasets", "diffusers", "fast_hadamard_transform", "flashinfer", "huggingface_hub", "megatron.energon", "mistral_common",
         "mlflow", "modelopt", "multistorageclient", "nvidia_resiliency_ext", "peft", "PIL", "qwen_vl_utils", "regex", "rich", "safetensors", "six",
         "tensorboard", "timm", "tokenizers", "torchvision", "tqdm", "transformers", "wandb"}
EMPTY = {
    "megatron.bridge": {},
    "megatron.bridge.models": {"GPTModelProvider": "megatron.bridge.models.gpt_provider", "T5ModelProvider": "megatron.bridge.models.t5_provider"},
    "megatron.bridge.models.conversion": {},
    "megatron.bridge.models.hf_pretrained": {},
}


class EmptyPackage(types.ModuleType):
    """A package whose __init__ does not run; `elsewhere` says in which module a name of it is."""

    def __init__(self, name, folder, elsewhere):
        super().__init__(name)
        self.__path__ = [str(folder)]
        self._elsewhere = elsewhere

    def __getattr__(self, name):
        if name in self._elsewhere:
            return getattr(importlib.import_module(self._elsewhere[name]), name)
        raise AttributeError(name)


def install(root):
    """`root` is the folder that holds the package megatron, which is imported."""
    packages.install(ROOTS)
    for name, elsewhere in EMPTY.items():
        package = EmptyPackage(name, root.joinpath(*name.split(".")), elsewhere)
        sys.modules[name] = package
        parent, _, leaf = name.rpartition(".")
        setattr(sys.modules[parent], leaf, package)
