#!/usr/bin/env python3
"""Writes data/muon.json: a few steps of Muon on small matrices by NVIDIA's own optimizer, as truth for model/optimizer/muon.

    git clone https://github.com/NVIDIA-NeMo/Emerging-Optimizers SOURCE
    pip install torch numpy absl-py      # Python 3.12 or newer
    PYTHONPATH=SOURCE python3 tests/golden/make_muon_vectors.py --commit HASH [--out FILE]

The class is emerging_optimizers.orthogonalized_optimizers.Muon, which Megatron-LM's TensorParallelMuon differs from in tp and in
queries, keys and values, which are orthogonalised apart: here each of the three is a parameter of its own. Matrix products are in fp32.
Nothing comes from mgplan.
"""
import argparse
import datetime
import json
import pathlib

import torch
from emerging_optimizers.orthogonalized_optimizers.muon import Muon

SEED = 20
STEPS = 3
LEARNING_RATE = 0.02
WEIGHT_DECAY = 0.1

# Rows of each part of a packed matrix's groups; one part: the whole matrix.
CASES = [
    {"name": "wide", "groups": 1, "parts": [6], "columns": 10, "nesterov": False, "scale": "spectral"},
    {"name": "tall", "groups": 1, "parts": [10], "columns": 6, "nesterov": True, "scale": "unit_rms_norm"},
    {"name": "square", "groups": 1, "parts": [7], "columns": 7, "nesterov": False, "scale": "shape_scaling", "steps": 7,
     "extra_scale": 0.2},
    {"name": "packed", "groups": 2, "parts": [4, 2, 2], "columns": 6, "nesterov": True, "scale": "spectral"},
]


def values_of(tensor):
    return [float(f"{value:.9g}") for value in tensor.flatten().tolist()]  # enough for an fp32


def parts_of(packed, case):
    grouped = packed.view(case["groups"], sum(case["parts"]), case["columns"])
    return [part.reshape(-1, case["columns"]).clone() for part in torch.split(grouped, case["parts"], dim=1)]


def packed_of(parts, case):
    return torch.cat([part.view(case["groups"], -1, case["columns"]) for part in parts], dim=1)


def run(case, generator):
    rows = case["groups"] * sum(case["parts"])

    def draw(deviation):
        return torch.randn(rows, case["columns"], generator=generator) * deviation

    initial, gradients = draw(0.5), [draw(0.01) for _ in range(STEPS)]
    parameters = [torch.nn.Parameter(part) for part in parts_of(initial, case)]
    optimizer = Muon(parameters, LEARNING_RATE, 0.95, WEIGHT_DECAY, nesterov=case["nesterov"], fp32_matmul_prec="highest",
                     num_ns_steps=case.get("steps", 5), scale_mode=case["scale"], extra_scale_factor=case.get("extra_scale", 1.0))
    for gradient in gradients:
        for parameter, part in zip(parameters, parts_of(gradient, case)):
            parameter.grad = part
        optimizer.step()
    momenta = [optimizer.state[parameter]["momentum_buffer"] for parameter in parameters]
    return {**case, "initial": values_of(initial), "gradients": [values_of(gradient) for gradient in gradients],
            "parameters": values_of(packed_of([parameter.detach() for parameter in parameters], case)),
            "momentum": values_of(packed_of(momenta, case))}


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--commit", required=True, help="of Emerging-Optimizers, for the record")
    options.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "data" / "muon.json")
    given = options.parse_args()
    generator = torch.Generator().manual_seed(SEED)
    record = {"source": f"NVIDIA-NeMo/Emerging-Optimizers @ {given.commit}", "torch": torch.__version__,
              "date": datetime.date.today().isoformat(), "learning_rate": LEARNING_RATE, "weight_decay": WEIGHT_DECAY, "momentum": 0.95,
              "cases": [run(case, generator) for case in CASES]}
    lines = json.dumps({**record, "cases": []})[:-2] + "\n" + ",\n".join(json.dumps(case) for case in record["cases"]) + "\n]}\n"
    json.loads(lines)
    given.out.write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
