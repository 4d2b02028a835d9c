"""Numbers of Megatron-LM and of mgplan: gradient bytes of ranks, orders of schedules, places in buffers."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import exports
import forks
import mgplan
import oracle
import server
from stand_ins import gpu, groups

# --- Gradient bytes of each built pipeline rank --------------------------------------------------------------------


def predicted_gradients(program, plan):
    """Gradient bytes of each rank of a plan."""
    document = json.loads(mgplan.run(program, "simulate", plan, "--per-rank", "--format", "json").stdout)
    return [rank["memory"]["breakdown"]["gradients"] for rank in document["ranks"]]


def parameters(program, rows, workers):
    """Compares accepted rows of exports.judged(): {"compared", "models", "others", "differences": [text]}. Bytes are equal or differ: padding
    counts on both sides. "others" are the models of which an export names a field that no flag carries: what it starts has other layers."""
    others = {row["model"] for row in rows if exports.starts_another_model(row)}
    rows = [row for row in rows if row["model"] not in others]

    def compare(row):
        predicted = predicted_gradients(program, row["plan"])
        pairs = [(stage, facts["gradient_bytes"], predicted[facts["rank"]]) for stage, facts in row["stages"].items() if "gradient_bytes" in facts]
        return [f"{row['model']} stage {stage}: Megatron-LM {real:,} bytes of gradients, mgplan {ours:,} ({ours - real:+,}; {' '.join(row['options'])})"
                for stage, real, ours in pairs if real != ours], len(pairs)

    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(compare, rows))
    return {"compared": sum(count for _, count in results), "models": len({row["model"] for row in rows}), "others": sorted(others),
            "differences": [text for texts, _ in results for text in texts]}


# --- Schedules ------------------------------------------------------------------------------------------------------


class Output:
    """What a forward pass gives: it knows its chunk."""

    def __init__(self, chunk):
        self.chunk = chunk


class Neighbours:
    """Communication with the stages in front and behind, of which nothing is needed."""

    def __init__(self, pp, rank, chunks, config):
        ranks = groups.Group(range(pp))
        self.pp_group, self.config, self.virtual_pipeline_model_parallel_size = ranks, config, chunks if chunks > 1 else None
        self.total_stages, self.current_stage = pp, rank
        self.is_pp_first_stage, self.is_pp_last_stage = rank == 0, rank == pp - 1

    def __getattr__(self, name):
        both = name == "send_forward_backward_recv_forward_backward"
        return lambda *_, **__: (None, None) if both else None


def real_order(pp, rank, chunks, microbatches, group):
    """Chunks in the order in which Megatron-LM's own schedule passes them: +chunk forward, -chunk backward."""
    order = []
    config = oracle.TransformerConfig(num_layers=pp * chunks, hidden_size=8, num_attention_heads=1, pipeline_model_parallel_size=pp, pipeline_dtype=oracle.torch.float32,
                                      virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None, deallocate_pipeline_outputs=False,
                                      microbatch_group_size_per_vp_stage=group)
    models = []
    for chunk in range(chunks):
        model = oracle.torch.nn.Module()
        model.config, model.chunk, model.model_type = config, chunk, None
        models.append(model)

    def forward(_, __, model, *___, **____):
        order.append(model.chunk + 1)
        return [Output(model.chunk)], 0

    def backward(_, output, *__, **___):
        output = output[0] if isinstance(output, list) else output
        order.append(-(output.chunk + 1))

    schedules = oracle.schedules
    schedules.forward_step, schedules.backward_step = forward, backward
    groups.pose_as(rank, pp)
    neighbours = Neighbours(pp, rank, chunks, config)
    alone = groups.Group([rank])
    collection = oracle.ProcessGroupCollection(tp=alone, cp=alone, pp=neighbours.pp_group, embd=alone, pos_embd=alone, dp_cp=alone, tp_dp_cp=alone, dp=alone)
    interleaved = chunks > 1
    run = schedules.forward_backward_pipelining_with_interleaving if interleaved else schedules.forward_backward_pipelining_without_interleaving
    with gpu.WithoutGpu():
        run(forward_step_func=None, data_iterator=[None] * chunks if interleaved else None, model=models if interleaved else models[0], num_microbatches=microbatches,
            seq_length=8, micro_batch_size=1, p2p_communicator=neighbours, pg_collection=collection)
    return order


def drawn_schedules(count, seed):
    draw, seen = random.Random(seed), []
    while len(seen) < count:
        pp, chunks, microbatches = draw.choice([2, 3, 4, 5, 6, 8, 12, 16]), draw.choice([1, 2, 3, 4, 5, 7]), draw.randint(2, 48)
        group = draw.choice([pp, pp, pp + 1, 2 * pp, microbatches]) if chunks > 1 else pp
        fits = chunks == 1 or (pp <= group <= microbatches and (microbatches % group == 0 or microbatches % group >= pp))
        if fits and microbatches >= pp and (pp, chunks, microbatches, group) not in seen:
            seen.append((pp, chunks, microbatches, group))
    return seen


def schedules(program, count, seed, workers):
    cases = drawn_schedules(count, seed)

    def predicted(case):
        pp, chunks, microbatches, group = case
        words = ["--pp", pp, "--vpp", chunks, "--microbatches", microbatches, *(["--group-size", group] if chunks > 1 else [])]
        return [rank["order"] for rank in json.loads(mgplan.run(program, "schedule", *words, "--format", "json").stdout)["ranks"]]

    def real(case):
        pp, chunks, microbatches, group = case
        try:
            return [real_order(pp, rank, chunks, microbatches, group) for rank in range(pp)]
        except Exception as error:  # pylint: disable=broad-except
            return f"{type(error).__name__} at {oracle.place_of(error)}: {error}"

    with ThreadPoolExecutor(workers) as pool:
        ours = list(pool.map(predicted, cases))
    differences = []
    for index, orders in forks.map_forked(real, cases, workers, 120, lambda text: text):
        if orders != ours[index]:
            pp, chunks, microbatches, group = cases[index]
            ranks = orders if isinstance(orders, str) else f"ranks {[rank for rank in range(pp) if orders[rank] != ours[index][rank]]}"
            differences.append(f"pp {pp}, vpp {chunks}, {microbatches} microbatches in groups of {group}: {ranks}")
    return {"compared": len(cases), "differences": differences}


# --- Buffers --------------------------------------------------------------------------------------------------------


def drawn_buffers(count, seed):
    """Small jobs of dense models and of mixtures; (words, world, options of `mgplan buffers`)."""
    draw = random.Random(seed)
    for index in range(count):
        tp, pp, dp = draw.choice([1, 2, 4]), draw.choice([1, 2]), draw.choice([2, 4, 8])
        words = {"--num-layers": 4 * pp, "--hidden-size": draw.choice([256, 512, 768]), "--num-attention-heads": 8, "--seq-length": 512,
                 "--max-position-embeddings": 512, "--micro-batch-size": 1, "--global-batch-size": 8 * dp, "--vocab-size": draw.choice([1000, 32000]),
                 "--tensor-model-parallel-size": tp, "--pipeline-model-parallel-size": pp, "--ddp-bucket-size": draw.choice([300000, 1000000, 40000000]),
                 "--position-embedding-type": "rope", "--tokenizer-type": "NullTokenizer"}
        flags = ["--bf16", "--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"]
        flags += [flag for flag in ("--swiglu", "--disable-bias-linear", "--untie-embeddings-and-output-weights", "--qk-layernorm") if draw.random() < 0.5]
        options = {"--tp": tp, "--pp": pp, "--dp": dp, "--bucket-size": words["--ddp-bucket-size"]}
        if draw.random() < 0.4:
            words.update({"--num-layers": 8, "--num-layers-per-virtual-pipeline-stage": 2} if pp > 1 else {})
            options.update({"--vpp": 2} if pp > 1 else {})
        if tp > 1:
            flags.append("--sequence-parallel")
        if index % 2:
            ep = draw.choice([ep for ep in (1, 2, 4) if ep <= dp])
            words.update({"--num-experts": 8, "--moe-router-topk": 2, "--moe-ffn-hidden-size": 256, "--expert-model-parallel-size": ep,
                          "--expert-tensor-parallel-size": draw.choice([1, tp]), "--moe-token-dispatcher-type": "alltoall"})
            flags += ["--moe-grouped-gemm", *(["--disable-bias-linear"] if "--disable-bias-linear" not in flags else [])]
            options.update({"--ep": ep, "--etp": words["--expert-tensor-parallel-size"]})
        yield [str(word) for pair in words.items() for word in pair] + flags, tp * pp * dp, options


def places(buffer):
    return sorted(tuple(place) for place in buffer["params"])


def buffers(program, folder, count, seed, workers):
    Path(folder).mkdir(parents=True, exist_ok=True)
    cases = list(drawn_buffers(count, seed))
    commands = [oracle.Command([*words, "--mock-data", "--train-iters", "10", "--lr", "1e-4"], world, (9, 0), {"CUDA_DEVICE_MAX_CONNECTIONS": 1},
                               wants=("parameters", "buffers")) for words, world, _ in cases]
    differences, compared = [], 0
    for index, verdict in server.judge_all(commands, workers):
        words, _, options = cases[index]
        name = f"buffers of {' '.join(words)}"
        if not verdict.accepted:
            differences.append(f"{name}: {verdict.line()}")
            continue
        script = Path(folder) / f"buffers-{index}.sh"
        script.write_text(f"torchrun pretrain_gpt.py {' '.join(words)}\n")
        for stage, facts in verdict.facts["stages"].items():
            for chunk, real in enumerate(facts["chunks"]):
                compared += 1
                extra = {"--pp-rank": stage, **({"--chunk": chunk} if "--vpp" in options else {})}
                ours = json.loads(mgplan.run(program, "buffers", "--model", script, *(word for pair in {**options, **extra}.items() for word in pair),
                                             "--format", "json").stdout)["buffers"]
                ours = [{"expert": buffer["expert"], "dp": buffer["dp"], "params": [(place["start"], place["end"], place["bucket"]) for place in buffer["params"]]}
                        for buffer in ours]
                if sorted((buffer["expert"], buffer["dp"], places(buffer)) for buffer in real) != sorted((buffer["expert"], buffer["dp"], places(buffer)) for buffer in ours):
                    differences.append(f"{name}: stage {stage} chunk {chunk}")
                    break
    return {"compared": compared, "differences": differences}
