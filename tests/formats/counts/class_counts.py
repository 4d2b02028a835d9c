#!/usr/bin/env python3
"""Writes class_counts.json beside this file: configs of five layers as the classes of transformers have them by default, with the number of
parameters of the model that transformers builds from each on PyTorch's meta device (unique tensors).

usage: class_counts.py TYPE...     needs torch and transformers 5.23.0; no test runs it
"""
import json
import os
import sys
import warnings

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

warnings.filterwarnings("ignore")
LAYERS = 5
SAYS_NOTHING = {"architectures", "chunk_size_feed_forward", "dtype", "id2label", "label2id", "output_attentions", "output_hidden_states",
                "problem_type", "return_dict", "transformers_version", "use_cache", "initializer_range", "output_router_logits"}


def config_of(name):
    """The class's config with few layers, and without what says nothing of the network."""
    config = CONFIG_MAPPING[name](num_hidden_layers=LAYERS) if name != "nemotron_h" else CONFIG_MAPPING[name]()
    fields = {key: value for key, value in config.to_dict().items()
              if key not in SAYS_NOTHING and not key.endswith("token_id") and not key.startswith("_")}
    return config, json.loads(json.dumps(fields).replace("Infinity", "1e9"))


def parameters(config):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    return sum(tensor.numel() for tensor in {id(p): p for p in model.parameters()}.values())


def main():
    counts = {}
    for name in sys.argv[1:]:
        try:
            config, fields = config_of(name)
            counts[name] = {"parameters": parameters(config), "config": fields}
        except Exception as error:  # a class whose own default it cannot build
            print(name, repr(error)[:100], file=sys.stderr)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "class_counts.json")
    with open(path, "w") as out:
        json.dump({"_source": "transformers 5.23.0, by class_counts.py", "types": counts}, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
