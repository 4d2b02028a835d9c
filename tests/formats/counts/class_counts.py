#!/usr/bin/env python3
"""Writes class_counts.json beside this file: configs of five layers as the classes of transformers have them by default, with the number of
parameters of the model that transformers builds from each on PyTorch's meta device (unique tensors).

Of a multimodal type, the language model inside and its output layer count, and its other parts are left out of the config.

usage: class_counts.py TYPE...     needs torch and transformers 5.23.0; no test runs it. Types that the file holds stay as they are.
"""
import json
import os
import sys
import warnings

import torch
from transformers import AutoModelForCausalLM, AutoModelForMultimodalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

warnings.filterwarnings("ignore")
LAYERS = 5
# What classes cannot be built without and do not state.
NEEDS = {
    "qwen4_exp": {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 2048, "indexer_compress_ratio": 32},
    "cohere_compass": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "deepseek_ocr2": {"mlp_layer_types": ["dense"] + ["sparse"] * (LAYERS - 1)},
    "chameleon": {"vocabulary_map": {}},
    "zamba": {"attn_layer_period": 2, "attn_layer_offset": 1},  # two layers with the block that they share
}
SAYS_NOTHING = {"architectures", "chunk_size_feed_forward", "dtype", "id2label", "label2id", "output_attentions", "output_hidden_states",
                "problem_type", "return_dict", "transformers_version", "use_cache", "initializer_range", "output_router_logits"}


def said(config):
    """The fields of a config without those that say nothing of the network."""
    return {key: value for key, value in config.to_dict().items()
            if key not in SAYS_NOTHING and not key.endswith("token_id") and not key.startswith("_")}


def config_of(name):
    """The class's config with few layers, and without what says nothing of the network."""
    if name == "nemotron_h":
        config = CONFIG_MAPPING[name]()
    elif "text_config" in CONFIG_MAPPING[name].sub_configs_defaults:
        text = CONFIG_MAPPING[name]().text_config
        config = CONFIG_MAPPING[name](text_config=type(text)(num_hidden_layers=LAYERS, **NEEDS.get(name, {})))
    else:
        config = CONFIG_MAPPING[name](num_hidden_layers=LAYERS, **NEEDS.get(name, {}))
    fields = said(config)
    fields.pop("vq_config", None)
    if "text_config" in fields:
        tie = {"tie_word_embeddings": config.tie_word_embeddings} if hasattr(config, "tie_word_embeddings") else {}
        fields = {"model_type": name, **tie, "text_config": said(config.text_config)}
    return config, json.loads(json.dumps(fields).replace("Infinity", "1e9"))


def parameters(config):
    multimodal = hasattr(config, "text_config")
    causal = not multimodal and type(config) in AutoModelForCausalLM._model_mapping
    with torch.device("meta"):
        model = (AutoModelForCausalLM if causal else AutoModelForMultimodalLM).from_config(config)
    model.tie_weights()
    if hasattr(model.base_model, "vqmodel"):
        model.base_model.vqmodel = None  # what turns pictures into words
    modules = [model.get_decoder(), model.get_output_embeddings()] if multimodal else [model]
    return sum(tensor.numel() for tensor in {id(p): p for module in modules for p in module.parameters()}.values())


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "class_counts.json")
    with open(path) as held:
        counts = json.load(held)["types"]
    for name in sys.argv[1:]:
        try:
            config, fields = config_of(name)
            counts[name] = {"parameters": parameters(config), "config": fields}
        except Exception as error:  # a class whose own default it cannot build
            print(name, repr(error)[:100], file=sys.stderr)
    with open(path, "w") as out:
        json.dump({"_source": "transformers 5.23.0, by class_counts.py", "types": counts}, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
