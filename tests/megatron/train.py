"""Four training steps of tiny models by Megatron-LM's core and by mgplan, from the same weights and on the same data.

    train.py MGPLAN [--live] [--write]

Without --live mgplan is compared with the kept vectors (tests/golden/data/megatron_training.json), which needs nothing from PyPI, and trains in
fp64, so that no choice of an expert depends on the processor's rounding. --live trains with both in fp32, --write keeps Megatron-LM's results.
Losses and gradient norms agree within 1e-5 of their size.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import seeded_weights

HERE = Path(__file__).resolve().parent
KEPT = HERE.parent / "golden/data/megatron_training.json"
STEPS, SEQUENCE, BATCH, TOLERANCE = 4, 64, 4, 1e-5
RATE = ["--lr", "0.001", "--weight-decay", "0.01", "--clip-grad", "1"]  # those of training.py
# One step's samples, which every step trains on, so that their order does not matter.
TEXT = "".join(chr(32 + (i * i * 31 + i // 7 * 17) % 95) for i in range(BATCH * SEQUENCE + 1))
TINY = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256,
        "max_position_embeddings": 128, "hidden_act": "silu", "tie_word_embeddings": False, "rms_norm_eps": 1e-06, "rope_theta": 10000.0}
GROUPED = TINY | {"num_key_value_heads": 2, "head_dim": 16}
NORMED = GROUPED | {"model_type": "qwen3"}
LATENT = TINY | {"q_lora_rank": 32, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "head_dim": 8}
MODELS = {
    "dense": TINY | {"model_type": "llama"},
    "grouped queries": GROUPED | {"model_type": "llama"},
    "norms of queries and keys": NORMED,
    # Layer norms, biases, learned positions, tied embeddings.
    "GPT-2": {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 128, "vocab_size": 256, "activation_function": "gelu_new",
              "layer_norm_epsilon": 1e-05, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0},
    # Stretched positions (Megatron-LM takes 8,192 as their original number), tied embeddings.
    "Llama 3.2": GROUPED | {"model_type": "llama", "tie_word_embeddings": True, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}},
    "experts": GROUPED | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 96, "router_aux_loss_coef": 0.01,
                          "output_router_logits": True},
    # A shared expert with a gate, probabilities that do not add up to 1, biases of queries, keys and values.
    "Qwen2-MoE": GROUPED | {"model_type": "qwen2_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": False,
                            "shared_expert_intermediate_size": 96, "router_aux_loss_coef": 0.01, "decoder_sparse_step": 1, "output_router_logits": True},
    # Attention sinks, sliding windows, YaRN, biases of experts, clamped activations.
    "gpt-oss": GROUPED | {"model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 48, "sliding_window": 16,
                          "layer_types": ["sliding_attention", "full_attention"], "router_aux_loss_coef": 0.01, "swiglu_limit": 7.0, "attention_bias": True,
                          "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                                           "original_max_position_embeddings": 32}},
    "latent attention": LATENT | {"model_type": "youtu"},
    # Latent attention, groups of sigmoid-routed experts with a bias each, a shared expert, multi-token prediction.
    "DeepSeek-V3": LATENT | {"model_type": "deepseek_v3", "first_k_dense_replace": 1, "moe_intermediate_size": 48,
                             "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "n_shared_experts": 1, "norm_topk_prob": True,
                             "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "aux_loss_alpha": 0.0, "seq_aux": False,
                             "num_nextn_predict_layers": 1},
    "multi-token prediction": NORMED | {"num_nextn_predict_layers": 2},
    # The norm of small outputs would enlarge rounding, but for its epsilon.
    "gated delta nets": NORMED | {"model_type": "qwen3_5_text", "rms_norm_eps": 0.01, "num_hidden_layers": 3, "linear_conv_kernel_dim": 4,
                                  "linear_key_head_dim": 16, "linear_num_key_heads": 2, "linear_value_head_dim": 16, "linear_num_value_heads": 4,
                                  "layer_types": ["linear_attention", "full_attention", "linear_attention"],
                                  "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000.0, "rope_type": "default"}},
}
LAYOUTS = {"1 rank": ["--world", "1"], "tp 2": ["--world", "2", "--tp", "2"], "tp 2, sp": ["--world", "2", "--tp", "2", "--sequence-parallel", "on"],
           "dp 2": ["--world", "2", "--tp", "1", "--pp", "1"], "pp 2": ["--world", "2", "--pp", "2", "--vpp", "1"],
           "pp 2, vpp 2": ["--world", "2", "--pp", "2", "--vpp", "2"], "ep 2": ["--world", "2", "--tp", "1", "--pp", "1", "--ep", "2"]}
CASES = {"dense": ["1 rank", "tp 2", "pp 2"], "grouped queries": ["1 rank", "dp 2"], "norms of queries and keys": ["1 rank", "tp 2"],
         "GPT-2": ["1 rank", "tp 2, sp"], "Llama 3.2": ["1 rank", "pp 2"], "experts": ["1 rank", "ep 2", "tp 2, sp"], "Qwen2-MoE": ["1 rank", "ep 2"],
         "gpt-oss": ["1 rank", "ep 2"], "latent attention": ["1 rank", "tp 2, sp"], "DeepSeek-V3": ["1 rank", "ep 2", "tp 2, sp"],
         "multi-token prediction": ["1 rank", "tp 2", "pp 2"], "gated delta nets": ["1 rank", "tp 2, sp"]}
# Flags of an export that need a GPU or Transformer Engine; with the number of values behind them.
DROPPED = {"--use-distributed-optimizer": 0, "--overlap-grad-reduce": 0, "--overlap-param-gather": 0, "--attention-backend": 1,
           "--moe-grouped-gemm": 0, "--moe-permute-fusion": 0}


def mgplan(program, *words):
    done = subprocess.run([str(program), *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"mgplan {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


class Model:
    """A tiny model with its weights, in files of `folder`."""

    def __init__(self, program, folder, config, precision):
        self.program, self.folder, self.precision = program, Path(folder), precision
        self.folder.mkdir()
        self.data = self.folder / "data.txt"
        self.data.write_text(TEXT)
        self.config = self.folder / "config.json"
        self.config.write_text(json.dumps(config))
        self.checkpoint = self.folder / "checkpoint"
        self.run(self.plan(LAYOUTS["1 rank"]), "--steps", 1, "--checkpoint", self.checkpoint)
        self.weights = seeded_weights.fill(self.checkpoint)

    def plan(self, options):
        plan = self.folder / f"{'-'.join(options)}.json"
        mgplan(self.program, "plan", "--model", self.config, *options, "--precision", self.precision, "--seq", SEQUENCE, "--global-batch", BATCH,
               "--micro-batch", 1, "--search", "plain", "--save-plan", plan, "--format", "json")
        return plan

    def run(self, plan, *words):
        return json.loads(mgplan(self.program, "run", plan, "--data", self.data, "--format", "json", *RATE, *words))["steps"]

    def trained(self, layout):
        """Returns losses and gradient norms of mgplan's steps. They follow the step that wrote the checkpoint."""
        copy = self.folder / "copy"
        shutil.copytree(self.checkpoint, copy)
        steps = self.run(self.plan(LAYOUTS[layout]), "--steps", 1 + STEPS, "--checkpoint", copy, "--resume")
        shutil.rmtree(copy)
        return [{"loss": step["loss"], "mtp_losses": step.get("mtp_losses", []), "grad_norm": step["grad_norm"]} for step in steps]

    def job(self, layout):
        """Returns the job for training.py: the exported command without flags for a GPU, and the files."""
        options = LAYOUTS[layout]
        words = json.loads(mgplan(self.program, "export", self.plan(options), "--to", "megatron-args", "--format", "json"))["arguments"]
        kept = []
        while words:
            word = words.pop(0)
            if word in DROPPED:
                del words[:DROPPED[word]]
            else:
                kept.append(word)
        return {"words": kept, "weights": str(self.weights), "data": str(self.data), "world": int(options[1]), "steps": STEPS}


def of_megatron(jobs_to_do, folder):
    """Returns Megatron-LM's results of each job."""
    jobs = Path(folder) / "jobs.json"
    jobs.write_text(json.dumps(jobs_to_do))
    done = subprocess.run([sys.executable, HERE / "training.py", jobs], env=os.environ | {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, capture_output=True, text=True,
                          check=False)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0 or None in results:
        sys.exit(f"Megatron-LM: {done.stderr[-2000:]}")
    return results


def apart(ours, real):
    """Returns the largest relative differences of losses and of gradient norms."""
    pairs = {"loss": [pair for a, b in zip(ours, real) for pair in zip([a["loss"], *a["mtp_losses"]], [b["loss"], *b["mtp_losses"]], strict=True)],
             "grad_norm": [(a["grad_norm"], b["grad_norm"]) for a, b in zip(ours, real, strict=True)]}
    return {what: max(abs(a - b) / abs(b) for a, b in some) for what, some in pairs.items()}


def compare(program, live, cases=None):
    """Yields (name, results of Megatron-LM, the differences of mgplan's)."""
    pairs = [(model, layout) for model, layouts in (cases or CASES).items() for layout in layouts]
    names = [f"{model}, {layout}" for model, layout in pairs]
    with tempfile.TemporaryDirectory() as folder:
        models = {name: Model(program, Path(folder) / name.replace(" ", "_"), MODELS[name], "fp32" if live else "fp64") for name in dict(pairs)}
        if live:
            results = of_megatron([models[model].job(layout) for model, layout in pairs], folder)
        else:
            kept = json.loads(KEPT.read_text())["cases"]
            results = [kept[name] for name in names]
        for name, (model, layout), real in zip(names, pairs, results, strict=True):
            yield name, real, apart(models[model].trained(layout), real)


def main():
    program, live, write = sys.argv[1], "--live" in sys.argv, "--write" in sys.argv
    failed, results = False, {}
    for name, real, differences in compare(program, live):
        wrong = not all(difference <= TOLERANCE for difference in differences.values())
        failed |= wrong
        results[name] = real
        print(f"{name}: losses within {differences['loss']:.1e}, gradient norms within {differences['grad_norm']:.1e}{' FAILED' if wrong else ''}", flush=True)
    if write:
        source = "tests/megatron/train.py --live --write: megatron-core 0.19.2, torch 2.9.1, gloo on CPU ranks"
        cases = ",\n".join(f"  {json.dumps(name)}: [\n   " + ",\n   ".join(map(json.dumps, steps)) + "\n  ]" for name, steps in results.items())
        KEPT.write_text(f'{{\n "source": {json.dumps(source)},\n "cases": {{\n{cases}\n }}\n}}\n')
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
