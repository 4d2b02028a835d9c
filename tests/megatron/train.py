"""Four training steps of tiny models by Megatron-LM's core and by mgplan, from the same weights and on the same data.

    train.py MGPLAN [--live] [--write]

Without --live mgplan is compared with the kept vectors (tests/golden/data/megatron_training.json), which needs nothing from PyPI. --live
trains with Megatron-LM, --write keeps its results. Losses and gradient norms agree within 1e-5 of their size.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEPT = HERE.parent / "golden/data/megatron_training.json"
STEPS, SEQUENCE, BATCH, TOLERANCE = 4, 64, 4, 1e-5
RATE = ["--lr", "0.001", "--weight-decay", "0.01", "--clip-grad", "1"]  # those of training.py
# One step's samples, which every step trains on, so that their order does not matter.
TEXT = "".join(chr(32 + (i * i * 31 + i // 7 * 17) % 95) for i in range(BATCH * SEQUENCE + 1))
DENSE = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 384,
         "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 512, "max_position_embeddings": 256, "hidden_act": "silu",
         "tie_word_embeddings": False, "rms_norm_eps": 1e-05}
NORMED = DENSE | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 16, "num_key_value_heads": 4, "rope_theta": 10000.0}
CASES = {
    "dense, 1 rank": (DENSE, ["--world", "1"]),
    "dense, tp 2": (DENSE, ["--world", "2", "--tp", "2"]),
    "grouped queries, 1 rank": ("tiny-llama", ["--world", "1"]),
    "grouped queries, tp 2": ("tiny-llama", ["--world", "2", "--tp", "2"]),
    "grouped queries, dp 2": ("tiny-llama", ["--world", "2", "--tp", "1", "--pp", "1"]),
    "norms of queries and keys, 1 rank": (NORMED, ["--world", "1"]),
}
# Flags of an export that need a GPU or Transformer Engine; with the number of values behind them.
DROPPED = {"--use-distributed-optimizer": 0, "--overlap-grad-reduce": 0, "--overlap-param-gather": 0, "--attention-backend": 1, "--sequence-parallel": 0,
           "--moe-grouped-gemm": 0, "--moe-permute-fusion": 0}


def mgplan(program, *words):
    done = subprocess.run([str(program), *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"mgplan {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


class Case:
    def __init__(self, program, folder, name):
        self.program, self.folder = program, Path(folder)
        model, self.options = CASES[name]
        self.world = int(self.options[1])
        self.data = self.folder / "data.txt"
        self.data.write_text(TEXT)
        if isinstance(model, dict):
            (self.folder / "weights").mkdir()
            (self.folder / "weights/config.json").write_text(json.dumps(model))  # --export-weights wants it there
            model = self.folder / "weights/config.json"
        self.plan = self.folder / "plan.json"
        mgplan(program, "plan", "--model", model, *self.options, "--precision", "fp32", "--seq", SEQUENCE, "--global-batch", BATCH, "--micro-batch", 1,
               "--save-plan", self.plan, "--format", "json")

    def of_mgplan(self, *words):
        steps = json.loads(mgplan(self.program, "run", self.plan, "--data", self.data, "--format", "json", *(words or ("--steps", STEPS, *RATE))))["steps"]
        return [{"loss": step["loss"], "grad_norm": step["grad_norm"]} for step in steps]

    def words(self):
        words = json.loads(mgplan(self.program, "export", self.plan, "--to", "megatron-args", "--format", "json"))["arguments"]
        kept = []
        while words:
            word = words.pop(0)
            if word in DROPPED:
                del words[:DROPPED[word]]
            else:
                kept.append(word)
        return kept

    def of_megatron(self):
        """Trains with Megatron-LM from the weights of mgplan's first step, which a vanishing rate leaves as they are."""
        self.of_mgplan("--steps", 1, "--lr", "1e-30", "--export-weights", self.folder / "weights")
        words = self.folder / "words.json"
        words.write_text(json.dumps(self.words()))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        processes = []
        for rank in range(self.world):
            environment = os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(self.world), "MASTER_ADDR": "127.0.0.1",
                                        "MASTER_PORT": str(port), "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
            processes.append(subprocess.Popen([sys.executable, HERE / "training.py", words, self.folder / "weights/model.safetensors", self.data, str(STEPS)],
                                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        outputs = [process.communicate() for process in processes]
        for process, (_, errors) in zip(processes, outputs):
            if process.returncode != 0:
                sys.exit(f"Megatron-LM: {errors[-2000:]}")
        return json.loads(outputs[0][0].strip().splitlines()[-1])


def apart(ours, real):
    """Largest difference of losses and of gradient norms, relative."""
    return {what: max(abs(a[what] - b[what]) / abs(b[what]) for a, b in zip(ours, real)) for what in ("loss", "grad_norm")}


def compare(program, live):
    """Yields (name, results of Megatron-LM, how far mgplan's are apart)."""
    kept = None if live else json.loads(KEPT.read_text())["cases"]
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            case = Case(program, folder, name)
            real = case.of_megatron() if live else kept[name]
            yield name, real, apart(case.of_mgplan(), real)


def main():
    program, live, write = sys.argv[1], "--live" in sys.argv, "--write" in sys.argv
    failed, results = False, {}
    for name, real, differences in compare(program, live):
        wrong = max(differences.values()) > TOLERANCE
        failed |= wrong
        results[name] = real
        print(f"{name}: losses within {differences['loss']:.1e}, gradient norms within {differences['grad_norm']:.1e}{' FAILED' if wrong else ''}", flush=True)
    if write:
        KEPT.write_text(json.dumps({"source": "tests/megatron/train.py --live --write: megatron-core 0.19.2, torch 2.9.1, gloo on CPU ranks", "cases": results},
                                   indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
