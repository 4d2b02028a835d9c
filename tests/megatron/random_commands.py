"""Random training commands near the border of legality: a small model in a layout that mostly fits together, and a few settings that may
not. `command(seed)` always gives the same."""

import dataclasses
import random
import shlex

# Settings: weight, what the command has to have (- for nothing), words. One of the words between bars is drawn; {…} names a fact of the command.
SETTINGS = """
4 pp --num-virtual-stages-per-pipeline-rank 1|2|2|3|4
3 pp --num-layers-per-virtual-pipeline-stage 1|1|2|3|4
3 pp --pipeline-model-parallel-layout {layout}
3 pp --decoder-first-pipeline-num-layers 1|2|3|4|0
3 pp --decoder-last-pipeline-num-layers 1|2|3|4
3 pp --account-for-embedding-in-pipeline-split
3 pp --account-for-loss-in-pipeline-split
2 pp --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split
3 pp --microbatch-group-size-per-virtual-pipeline-stage 1|2|3|4|6|8
1 pp --no-overlap-p2p-communication
1 pp --overlap-p2p-communication-warmup-flush
1 pp --defer-embedding-wgrad-compute
1 pp --use-tp-pp-dp-mapping
2 tp --sequence-parallel
1 tp --tp-comm-overlap
1 tp --distribute-saved-activations --recompute-granularity full --recompute-method uniform
1 tp --tensor-parallel-num-weight-shards 2|4|8
2 cp --cp-comm-type p2p|a2a|all_gather|a2a+p2p
1 cp --cp-comm-type p2p a2a
1 cp --hierarchical-context-parallel-sizes 2|1 2 --cp-comm-type a2a+p2p
2 - --num-distributed-optimizer-instances 1|2|3|4
2 - --overlap-grad-reduce
2 dopt --overlap-grad-reduce --overlap-param-gather
1 dopt --overlap-param-gather
1 dopt --overlap-grad-reduce --overlap-param-gather --overlap-param-gather-with-optimizer-step --ckpt-format torch|torch_dist
1 - --use-megatron-fsdp --ckpt-format fsdp_dtensor --data-parallel-sharding-strategy no_shard|optim|optim_grads|optim_grads_params
1 - --use-torch-fsdp2 --ckpt-format torch_dist|torch_dcp --no-gradient-accumulation-fusion
1 - --ddp-bucket-size 1000000
1 - --ddp-num-buckets 4
1 - --ddp-average-in-collective
2 - --recompute-granularity full|selective
2 - --recompute-granularity full --recompute-method uniform|block --recompute-num-layers 1|2|4|5|20
1 - --recompute-method uniform|block --recompute-num-layers 1
3 - --recompute-granularity selective --recompute-modules core_attn|moe_act|layernorm|mla_up_proj|mlp|moe|shared_experts
2 - --recompute-granularity selective --recompute-modules core_attn|layernorm mlp|moe_act|moe|mhc
1 - --recompute-activations
1 - --moe-layer-recompute
1 - --cpu-offloading-num-layers 1|2|{layers}
2 - --fine-grained-activation-offloading --offload-modules core_attn|attn_proj|qkv_linear|expert_fc1|moe_act|attn_norm|mlp_norm
1 - --fine-grained-activation-offloading --offload-modules core_attn attn_proj
2 - --fp8-format hybrid|e4m3 --fp8-recipe delayed|tensorwise|blockwise|mxfp8
1 - --fp8-format e4m3 --fp8-recipe tensorwise|blockwise|mxfp8 --fp8-param-gather
1 - --fp4-format e2m1
1 - --fp4-format e2m1 --fp4-recipe nvfp4 --fp4-param-gather
1 - --fp8-format hybrid --first-last-layers-bf16 --num-layers-at-start-in-bf16 0|1|2|5
1 dopt --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather --reuse-grad-buf-for-mxfp8-param-ag
2 dopt --use-precision-aware-optimizer
1 dopt --use-precision-aware-optimizer --exp-avg-dtype bf16|fp16|fp8|fp32 --exp-avg-sq-dtype bf16|fp16|fp8|fp32
1 - --main-grads-dtype|--main-params-dtype|--exp-avg-dtype bf16|fp16|fp32
1 - --grad-reduce-in-bf16
1 - --accumulate-allreduce-grads-in-fp32
1 - --optimizer-cpu-offload
1 dopt --optimizer-cpu-offload --use-precision-aware-optimizer --optimizer-offload-fraction 0.5|1.0
1 - --fp32-residual-connection
1 moe --moe-router-num-groups 2|3|4|8
1 moe --moe-router-group-topk 1|2|4
2 moe --moe-router-num-groups 2|4|8 --moe-router-group-topk 1|2|4
2 moe --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep|hybridep
1 moe --moe-enable-deepep
2 moe --moe-shared-expert-intermediate-size 256|300|512
2 moe --moe-shared-expert-intermediate-size 512 --moe-shared-expert-overlap
2 moe --moe-expert-capacity-factor 1.0|1.5|-1.0
1 moe --moe-expert-capacity-factor 1.0 --moe-pad-expert-input-to-capacity
1 - --moe-pad-expert-input-to-capacity
2 moe --moe-router-load-balancing-type sinkhorn|aux_loss|seq_aux_loss|global_aux_loss|none
1 moe --moe-router-load-balancing-type aux_loss seq_aux_loss --moe-aux-loss-coeff 0.01 0.02
1 moe --moe-router-load-balancing-type aux_loss seq_aux_loss
1 moe --moe-router-score-function sigmoid|softmax|sqrtsoftplus
1 moe --moe-router-score-function sigmoid --moe-router-enable-expert-bias
1 moe --moe-router-enable-expert-bias
1 moe --moe-router-padding-for-fp8|--moe-router-padding-for-quantization
1 moe --moe-permute-fusion
1 moe --moe-router-fusion
1 moe --moe-router-pre-softmax
1 moe --moe-latent-size 64|128
1 moe --moe-single-grouped-weight
1 moe --moe-router-dtype fp32|fp64
1 moe --moe-ffn-hidden-size 300|512
1 moe --moe-router-topk 1|3|8|16
2 moe --expert-model-parallel-size 2|4|8|16
2 moe --expert-tensor-parallel-size 1|2|4|8
2 moe --overlap-moe-expert-parallel-comm
1 moe --overlap-moe-expert-parallel-comm --delay-wgrad-compute
1 - --delay-wgrad-compute
3 - --cuda-graph-impl local|transformer_engine --cuda-graph-modules attn|mlp|moe|moe_router|mamba
2 - --cuda-graph-impl local|transformer_engine|full_iteration
1 - --cuda-graph-impl transformer_engine --cuda-graph-modules attn moe_router|mlp moe_preprocess|moe_router
1 - --cuda-graph-impl full_iteration --no-check-for-nan-in-loss-and-grad
1 - --cuda-graph-impl local|transformer_engine --cuda-graph-scope full|attn|moe_router|full_iteration
1 - --enable-cuda-graph|--external-cuda-graph
3 - --mtp-num-layers 1|1|2
1 - --mtp-num-layers 2 --mtp-use-repeated-layer
1 - --qk-layernorm
1 - --window-size 127,0|1024,0
1 - --window-size 127,0 --window-attn-skip-freq 2|4
1 - --attention-output-gate
1 - --kv-channels 32|64|96
1 - --squared-relu|--quick-geglu
1 - --add-qkv-bias
1 - --transformer-impl local
1 - --optimizer sgd|muon|lion
1 - --calculate-per-token-loss
1 - --no-gradient-accumulation-fusion
1 - --group-query-attention --num-query-groups 2|4|6
1 - --seq-length 1000|1020|3000|4096
1 - --global-batch-size 6|10|24|48|100
1 - --decrease-batch-size-if-needed
1 - --num-experts 1|2|6|12
1 - --no-rope-freq 2|3|4
1 - --qk-clip
1 - --log-max-attention-logit
1 - --apply-query-key-layer-scaling
1 - --attention-softmax-in-fp32
1 - --deterministic-mode
1 - --use-te-activation-func
1 - --no-persist-layer-norm
1 - --make-vocab-size-divisible-by 1|64|96
1 - --fused-residual-rmsnorm
1 - --rotary-percent 0.5|0.25
1 - --rotary-base 500000|10000.5
1 - --softmax-type off-by-one|learnable
1 - --use-rope-scaling
1 - --batch-invariant-mode
1 - --lr-warmup-samples 100
1 - --hybrid-context-parallel --calculate-per-token-loss --max-seqlen-per-dp-cp-rank 1024
"""


def parse_settings():
    rows = []
    for line in SETTINGS.strip().splitlines():
        weight, needs, words = line.split(" ", 2)
        rows.append((int(weight), needs, words.split(" ")))
    return rows


ROWS = parse_settings()


@dataclasses.dataclass
class RandomCommand:
    seed: int
    kind: str
    flags: dict
    world: int
    cluster: str
    environment: dict

    def words(self):
        return [word for flag, values in self.flags.items() for word in (flag, *map(str, values))]

    def script(self):
        program = "pretrain_hybrid.py" if "--hybrid-layer-pattern" in self.flags else "pretrain_gpt.py"
        lines = [f"export {name}={value}" for name, value in self.environment.items()]
        lines += ["ARGS=(", *("    " + shlex.join([flag, *map(str, values)]) for flag, values in self.flags.items()), ")"]
        return "\n".join([*lines, f'torchrun {program} "${{ARGS[@]}}"', ""])


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.flags = {}
        self.edgy = self.chance(0.2)  # also sizes that rarely divide anything

    def chance(self, probability):
        return self.random.random() < probability

    def one_of(self, *values):
        return self.random.choice(values)

    def put(self, flag, *values):
        self.flags[flag] = list(values)

    def maybe(self, probability, flag, *choices):
        if self.chance(probability):
            self.put(flag, *([self.random.choice(choices)] if choices else []))

    # --- Base ---------------------------------------------------------------------------------------------------

    def sizes(self):
        odd = (3, 6) if self.edgy else ()
        self.hidden = self.one_of(256, 512, 768, 1024)
        self.heads = self.one_of(4, 8, 8, 12, 16, 16)
        while self.hidden % self.heads:
            self.heads = self.one_of(4, 8, 16)
        self.tp, self.pp, self.cp = self.one_of(1, 1, 2, 2, 4, 8, *odd[:1]), self.one_of(1, 1, 2, 2, 4, 4, *odd), self.one_of(1, 1, 1, 2, 2, 4)
        self.layers = self.one_of(4, 8, 8, 12, 16, *odd)
        if not self.edgy:
            while self.heads % self.tp:
                self.tp //= 2
            while self.layers % self.pp:
                self.pp //= 2
        replicas = self.one_of(1, 2, 2, 4, 8)
        while self.tp * self.pp * self.cp * replicas > 128:
            replicas, self.pp = max(replicas // 2, 1), min(self.pp, 2) if replicas == 1 else self.pp
        self.world = self.tp * self.pp * self.cp * replicas if self.chance(0.95) else self.one_of(8, 12, 16, 24, 48)
        microbatches = self.one_of(1, 2, 4, 6, 8, 8, 16)
        if self.chance(0.85):
            microbatches = max(microbatches, self.pp)
        micro = self.one_of(1, 1, 2)
        self.sequence = self.one_of(1024, 2048, 4096)
        for flag, value in (("--num-layers", self.layers), ("--hidden-size", self.hidden), ("--num-attention-heads", self.heads),
                            ("--seq-length", self.sequence), ("--max-position-embeddings", self.sequence if self.chance(0.99) else self.sequence // 2),
                            ("--micro-batch-size", micro), ("--global-batch-size", micro * replicas * microbatches if self.chance(0.97) else self.one_of(7, 12, 40)),
                            ("--vocab-size", 32000), ("--tokenizer-type", "NullTokenizer"), ("--train-iters", 10), ("--lr", "1e-4"),
                            ("--tensor-model-parallel-size", self.tp), ("--pipeline-model-parallel-size", self.pp)):
            self.put(flag, value)
        if self.cp > 1:
            self.put("--context-parallel-size", self.cp)
        if self.tp > 1:
            self.maybe(0.96 if "moe" in self.kind else 0.7, "--sequence-parallel")

    def common(self):
        if not self.chance(0.1):
            self.put(self.one_of("--bf16", "--bf16", "--bf16", "--fp16"))
        self.maybe(0.6, "--use-distributed-optimizer")
        self.maybe(0.6, "--swiglu")
        self.maybe(0.97 if "moe" in self.kind else 0.6, "--disable-bias-linear")
        self.maybe(0.6, "--position-embedding-type", "rope", "rope", "rope", "none", "learned_absolute")
        self.maybe(0.6, "--normalization", "RMSNorm", "RMSNorm", "LayerNorm")
        self.maybe(0.5, "--ffn-hidden-size", 1024, 1536, 2048, *((1000,) if self.edgy else ()))
        self.maybe(0.6, "--untie-embeddings-and-output-weights")
        if "mla" not in self.kind and self.chance(0.5):
            self.put("--group-query-attention")
            self.put("--num-query-groups", self.random.choice([groups for groups in (1, 2, 3, 4, 8) if self.edgy or self.heads % groups == 0]))

    def experts(self):
        self.put("--num-experts", self.one_of(8, 8, 16, 64, *((4, 6) if self.edgy else ())))
        top = self.one_of(2, 2, 4, 8, *((1,) if self.edgy else ()))
        self.put("--moe-router-topk", top)
        if top == 1 and self.chance(0.7):
            self.put("--moe-router-pre-softmax")
        ranks = max(self.world // self.pp, 1)
        ep, etp = self.one_of(1, 2, 2, 4, 8), self.one_of(1, 1, self.tp)
        if not self.edgy:
            while ep > 1 and ranks % (ep * etp):
                ep //= 2
        if ep > 1:
            self.put("--expert-model-parallel-size", ep)
        self.maybe(0.6, "--expert-tensor-parallel-size", etp)
        self.maybe(0.95, "--moe-token-dispatcher-type", "alltoall", "alltoall", "allgather", "flex")
        self.maybe(0.8, "--moe-grouped-gemm")
        self.maybe(0.6, "--moe-ffn-hidden-size", 256, 512)
        self.maybe(0.3, "--moe-layer-freq", "1", "2", f"([0]*1+[1]*{self.layers - 1})", f"([1]*{self.layers})", f"([0]*2+[1]*{self.layers - 3})")

    def latent(self):
        self.put("--multi-latent-attention")
        self.maybe(0.5, "--q-lora-rank", 128)
        for flag, value in (("--kv-lora-rank", 128), ("--qk-head-dim", 64), ("--qk-pos-emb-head-dim", 32), ("--v-head-dim", 64)):
            self.put(flag, value)
        self.maybe(0.6, "--rope-type", "rope", "yarn")
        self.maybe(0.85, "--no-rope-fusion")

    def delta_nets(self):
        self.put("--experimental-attention-variant", "gated_delta_net")
        self.maybe(0.97, "--linear-attention-freq", "2", "4", f"([1]*{self.layers - 1}+[0]*1)")
        self.delta_sizes()
        self.maybe(0.95, "--normalization", "RMSNorm")
        self.maybe(0.3, "--attention-output-gate")

    def delta_sizes(self):
        for flag, value in (("--linear-conv-kernel-dim", 4), ("--linear-key-head-dim", 32), ("--linear-value-head-dim", 32),
                            ("--linear-num-key-heads", self.one_of(4, 8, *((2, 6) if self.edgy else ()))), ("--linear-num-value-heads", self.one_of(8, 16))):
            self.put(flag, value)

    def pattern(self):
        del self.flags["--num-layers"]
        letters = self.one_of("M-M*-M-", "MMMM", "M*-", "ME*E", "M-", "GE*E", "M-*-") * self.one_of(1, 2, 2, 4)
        stages = self.pp * self.one_of(1, 1, 2)
        if self.pp > 1 and self.chance(0.6) and len(letters) >= stages:
            cuts = [len(letters) * i // stages for i in range(stages + 1)]
            letters = "|".join(letters[a:b] for a, b in zip(cuts, cuts[1:]))
        if self.chance(0.08):
            letters += self.one_of("/MM", "/*E")
        self.put("--hybrid-layer-pattern", letters)
        for flag, value in (("--mamba-state-dim", 64), ("--mamba-head-dim", self.one_of(32, 64)), ("--mamba-num-groups", self.one_of(1, 2, 4, 8))):
            self.put(flag, value)
        self.maybe(0.3, "--mamba-num-heads", 8, 12, 16)
        self.maybe(0.9, "--position-embedding-type", "none")
        if "E" in letters:
            self.put("--num-experts", 8)
            self.put("--moe-router-topk", 2)
            self.maybe(0.5, "--expert-model-parallel-size", 2, 4)
            self.put("--moe-token-dispatcher-type", "alltoall")
            self.maybe(0.8, "--moe-grouped-gemm")
            self.put("--disable-bias-linear")
        if "G" in letters:
            self.delta_sizes()

    # --- Settings -----------------------------------------------------------------------------------------------

    def layout_text(self):
        stages = self.pp * self.one_of(1, 1, 2, 3)
        counts = [self.layers // stages + (i < self.layers % stages) for i in range(stages)]
        if self.chance(0.4):
            giver, taker = self.random.randrange(stages), self.random.randrange(stages)
            if counts[giver]:
                counts[giver] -= 1
                counts[taker] += 1
        mtp = int(self.flags.get("--mtp-num-layers", [0])[0])
        texts = ["t" * count for count in counts]
        texts[0] = ("E" if self.chance(0.95) else "") + texts[0]
        texts[-1] += "m" * mtp + ("L" if self.chance(0.9) else "")
        return "|".join(texts + (["t"] if self.chance(0.05) else []))

    def has(self, need):
        return {"-": True, "pp": self.pp > 1, "tp": self.tp > 1, "cp": self.cp > 1, "moe": "--num-experts" in self.flags,
                "dopt": "--use-distributed-optimizer" in self.flags}[need]

    def add_settings(self):
        for _ in range(self.random.choices([0, 1, 2, 3, 4], [1, 5, 5, 3, 1])[0]):
            rows = [row for row in ROWS if self.has(row[1]) or self.chance(0.03)]
            _, _, words = self.random.choices(rows, [row[0] for row in rows])[0]
            flag = None
            for word in words:
                word = self.layout_text() if word == "{layout}" else self.random.choice(word.split("|")).replace("{layers}", str(self.layers))
                if word.startswith("--"):
                    flag = word
                    self.flags[flag] = []
                else:
                    self.flags[flag].append(word)

    def environment(self):
        found = {}
        if "--use-megatron-fsdp" not in self.flags and "--use-torch-fsdp2" not in self.flags and self.chance(0.97):
            found["CUDA_DEVICE_MAX_CONNECTIONS"] = 32 if "--overlap-moe-expert-parallel-comm" in self.flags and self.chance(0.9) else 1
        if "--fine-grained-activation-offloading" in self.flags:
            found["NVTE_CPU_OFFLOAD_V1"] = 1
        if "--apply-query-key-layer-scaling" in self.flags:
            found["NVTE_APPLY_QK_LAYER_SCALING"] = 1
        if "--deterministic-mode" in self.flags:
            found.update(NCCL_ALGO="Ring", NVTE_ALLOW_NONDETERMINISTIC_ALGO=0, CUBLAS_WORKSPACE_CONFIG=":4096:8")
        if "--tensor-parallel-num-weight-shards" in self.flags:
            found["CUDA_GRAPHS_USE_NODE_PRIORITY"] = 1
        return found

    def make(self, seed):
        self.kind = self.random.choices(["dense", "moe", "mla", "moe mla", "hybrid", "delta"], [27, 36, 6, 13, 10, 8])[0]
        self.sizes()
        self.common()
        for part, step in (("moe", self.experts), ("mla", self.latent), ("delta", self.delta_nets), ("hybrid", self.pattern)):
            if part in self.kind:
                step()
        self.add_settings()
        blackwell = "--fp4-format" in self.flags or self.flags.get("--fp8-recipe") == ["mxfp8"] or self.chance(0.1)
        return RandomCommand(seed, self.kind, self.flags, self.world, "dgx-b200" if blackwell else "dgx-h100", self.environment())


def command(seed):
    return Maker(seed).make(seed)
