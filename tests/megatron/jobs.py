"""Reads what mgplan exports, and knows the GPUs of its clusters."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import yaml

# Compute capability of the GPUs, by what clusters' names hold (developer.nvidia.com/cuda-gpus).
CAPABILITIES = {"a100": (8, 0), "h100": (9, 0), "h200": (9, 0), "h800": (9, 0), "gh200": (9, 0), "b200": (10, 0), "b300": (10, 3)}
# Data, tokenizer and length of training are the user's in an export; a tokenizer of this kind needs no file.
USERS_OWN = "--tokenizer-type NullTokenizer --mock-data --train-iters 100 --lr 1e-4".split()


def capability_of(cluster):
    for name, capability in CAPABILITIES.items():
        if name in cluster:
            return capability
    raise ValueError(f"the GPUs of cluster {cluster} are not known; add them to CAPABILITIES")


def read_script(path):
    """Returns (words, environment) of an exported shell file, as bash reads it."""
    script = 'source "$1" && printf "%s\\0" "${MEGATRON_ARGS[@]}" && printf "\\n\\0" && env -0'
    done = subprocess.run(["bash", "-c", script, "bash", str(path)], env={"PATH": os.environ["PATH"]}, stdout=subprocess.PIPE, check=True)
    words, _, environment = done.stdout.decode().partition("\n\0")
    pairs = dict(entry.split("=", 1) for entry in environment.split("\0") if "=" in entry)
    for shells_own in ("PATH", "PWD", "OLDPWD", "SHLVL", "_"):
        pairs.pop(shells_own, None)
    return words.split("\0")[:-1], pairs


def words_of(flag, value):
    """Words of one entry, as the runner of NVIDIA's functional tests makes them (tests/functional_tests/shell_test_utils/_run_training.sh at
    d98e8a64): text in brackets is split at spaces, other text with spaces, bars or parentheses is one word."""
    if value is True:
        return [flag]
    text = json.dumps(value) if isinstance(value, (bool, list)) else str(value).strip()
    if re.fullmatch(r"\[[^]]+\]", text):
        return [flag, *shlex.split(text[1:-1])]
    return [flag, text]


def read_yaml(path):
    """Returns (words, environment) of an exported YAML file."""
    document = yaml.safe_load(Path(path).read_text())
    words = [word for flag, value in document["MODEL_ARGS"].items() for word in words_of(flag, value)]
    return words, {name: str(value) for name, value in (document.get("ENV_VARS") or {}).items()}


def read(path):
    return read_yaml(path) if str(path).endswith((".yaml", ".yml")) else read_script(path)


def with_users_own(words):
    return [*words, *(word for word in USERS_OWN)] if "--tokenizer-type" not in words else list(words)
