#!/usr/bin/env python3
"""Prints how fast a checkpoint is written, beside dd on the same disk in the same run.

    bandwidth.py MGPLAN [--folder DIR] [--repeats 3] [--model MODEL] [--ranks 2]

Each repeat writes as many bytes with dd (conv=fsync, blocks of 16 MiB, one file) as the checkpoint before it had, once through the page
cache and once past it (oflag=direct), as checkpoints are written. Times of the checkpoint are those that `mgplan run` tells: from the
step's end until the manifest is on the disk.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


SMALL_LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 2816,
               "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 8000,
               "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("mgplan")
    parser.add_argument("--folder", default=".")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", help="default: a Llama of 67 million parameters, 0.8 GB of state")
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="mgplan_bandwidth_", dir=options.folder))
    try:
        plan, model = work / "plan.json", options.model
        if not model:
            model = work / "config.json"
            model.write_text(json.dumps(SMALL_LLAMA))
        subprocess.run([options.mgplan, "--model", model, "--world", str(options.ranks), "--tp", "1", "--pp", "1", "--global-batch",
                        str(options.ranks), "--micro-batch", "1", "--seq", "16", "--precision", "fp32", "--save-plan", plan], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rates = {"checkpoint": [], "dd": [], "dd oflag=direct": []}
        for repeat in range(options.repeats):
            folder = work / "checkpoint"
            said = subprocess.run([options.mgplan, "run", plan, "--steps", "1", "--ranks-in-process", "--checkpoint", folder, "--format", "json"],
                                  check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True).stderr
            seconds = float(re.search(r"saved: .* in ([0-9.]+) s", said)[1])
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            shutil.rmtree(folder)
            rates["checkpoint"].append(size / seconds)
            for name in ("dd", "dd oflag=direct"):
                begin = time.monotonic()
                subprocess.run([*name.split(), "if=/dev/zero", f"of={work / 'dd'}", "bs=16M", f"count={max(1, size >> 24)}",
                                "conv=fsync"], check=True, stderr=subprocess.DEVNULL)
                rates[name].append((work / "dd").stat().st_size / (time.monotonic() - begin))
                (work / "dd").unlink()
            print(f"{size / 1e6:,.0f} MB: " + ", ".join(f"{name} {rate[-1] / 1e6:,.0f} MB/s" for name, rate in rates.items()) +
                  f"; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
        middle = {name: statistics.median(rate) for name, rate in rates.items()}
        print("medians: " + ", ".join(f"{name} {rate / 1e6:,.0f} MB/s" for name, rate in middle.items()) +
              f": {100 * middle['checkpoint'] / middle['dd']:.0f} % of dd, "
              f"{100 * middle['checkpoint'] / middle['dd oflag=direct']:.0f} % of dd oflag=direct")
        return 0
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
