"""What published runs say of each other: sections of docs/accuracy.md on where predictions and records do not meet.

For `score`:
* a layer's time, from runs that differ in their number of layers alone;
* runs that differ in their micro batch alone, without their bubbles, and those of them that take less time for twice the tokens;
* software that reduces the input gradients of tensor parallel layers behind the weight gradients, not beside them;
* mixtures beside dense models on the same GPUs.
"""

import json
import statistics

RECOMPUTE = ("recompute-granularity", "recompute-method", "recompute-num-layers")
# Software whose column-parallel layers have a plain backward: both products, then the all-reduce (megatron/mpu/layers.py of
# NVIDIA/Megatron-LM@aed2f75e20 and of microsoft/Megatron-DeepSpeed@1619965d33; asynchronous in the former's 02bb1f5c86).
SYNCHRONOUS = {"megatron-readme-2020": "Megatron-LM of 2020", "sc21-table1": "Megatron-LM of 2021", "vtrain-multi": "Megatron-DeepSpeed",
               "vtrain-single": "Megatron-DeepSpeed"}
SYNCHRONOUS_FLAG = "no-async-tensor-model-parallel-allreduce"
LAYER_REMARK = ["",
                "vTrain's configurations say `use_checkpoint` throughout, while its own predictor leaves recompute out on the last pipeline",
                "rank, and so wherever pp is 1 (VIA-Research/vTrain@f8dda8473a, src/predictor.py). What ran is not known; the predictions",
                "follow the configurations. Recompute repeats two all-reduces of a layer under tp and none under dp, so that the ranking of tp",
                "against dp hangs on it."]
MIXTURE_REMARK = ["Where the kernels alone take longer than the run, hidden communication and launches do not explain the miss: at rates that meet",
                  "dense models on the same GPUs the kernels do not fit into the time. Why they ran faster is not known. The recipe of Grok-1 on",
                  "GB200 captures CUDA graphs (NVIDIA/dgxc-benchmarking@1f6d9f40e4, grok1/launch.sh), which its records' arguments do not say."]
LITTLE, MUCH = 0.10, 0.20  # spread over micro batches that is expected of large kernels, and twice as much


def mean(values):
    return statistics.fmean(values)


def number(arguments, name):
    return arguments.get(name, 1)


def microbatches(record):
    """Of one data parallel replica in an iteration; nothing where the record does not say."""
    given = record["arguments"]
    if "global-batch-size" not in given or "micro-batch-size" not in given:
        return None
    ranks = record["world"]
    for size in ("tensor", "pipeline"):
        ranks //= number(given, f"{size}-model-parallel-size")
    return given["global-batch-size"] // given["micro-batch-size"] // max(1, ranks // number(given, "context-parallel-size"))


def grouped(rows, without, also):
    """Lists of timed rows of one source that agree in all arguments but `without`, and in what `also` makes of a record."""
    groups = {}
    for row in rows:
        if row.measured["time"] and row.sixteen_bit:
            rest = {name: value for name, value in row.record["arguments"].items() if name not in without}
            groups.setdefault((row.source, row.record["cluster"], json.dumps(rest, sort_keys=True), also(row.record)), []).append(row)
    return groups.values()


def executed(row):
    """Seconds that the matrix products of one GPU take at the data sheet's rate, recompute included."""
    return row.hfu * row.predicted["time"]


def layer_pairs(rows):
    """(fewest layers, most layers): lists of rows without a pipeline that otherwise do the same in each microbatch."""
    pairs = []
    for group in grouped(rows, ("num-layers", "global-batch-size"), lambda record: microbatches(record)):
        counts = sorted({row.record["arguments"].get("num-layers", 0) for row in group})
        if len(counts) > 1 and number(group[0].record["arguments"], "pipeline-model-parallel-size") == 1:
            pairs.append(tuple([row for row in group if row.record["arguments"]["num-layers"] == count] for count in (counts[0], counts[-1])))
    return pairs


def per_layer(pair, seconds):
    """What one layer adds to a microbatch by `seconds(row)`."""
    few, many = pair
    given = few[0].record["arguments"]
    layers = many[0].record["arguments"]["num-layers"] - given["num-layers"]
    return (mean([seconds(row) for row in many]) - mean([seconds(row) for row in few])) / layers / microbatches(few[0].record)


def without_recompute(record):
    return record | {"arguments": {name: value for name, value in record["arguments"].items() if name not in RECOMPUTE}}


def layer_section(rows, simulate_all, regrets):
    pairs = [pair for pair in layer_pairs(rows) if number(pair[0][0].record["arguments"], "tensor-model-parallel-size") == 1]
    if not pairs:
        return []
    sources = sorted({pair[0][0].source for pair in pairs})
    plain, _ = simulate_all([without_recompute(row.record) for row in rows if row.source in sources])
    again = {row.id: row.predicted["time"] for row in plain}
    a100 = [row for row in rows if row.record["cluster"].startswith("dgx-a100") and row.measured["time"] and row.source not in sources]
    lines = ["### A layer's time", "",
             "Runs that differ in their number of layers alone (and in how many replicas share the batch) tell what one layer adds to a",
             "microbatch, gradient reduction and update included, in ms. *Of peak*: the FLOPs of its matrix products, recompute as the record",
             "states it, over that time, all kernels of the layer counted.", "",
             "| source | layers | width | micro batch | measured | of peak | predicted | predicted without recompute |",
             "|---|---|---:|---:|---:|---:|---:|---:|"]
    shares, nearer = [], 0
    for pair in sorted(pairs, key=lambda p: [p[0][0].record["arguments"][name] for name in ("hidden-size", "micro-batch-size", "num-layers")]):
        few, many = (some[0].record["arguments"] for some in pair)
        took = per_layer(pair, lambda row: row.measured["time"])
        shares.append(per_layer(pair, executed) / took)
        predicted, once = per_layer(pair, lambda row: row.predicted["time"]), per_layer(pair, lambda row: again[row.id])
        nearer += abs(took - once) < abs(took - predicted)
        lines.append(f"| {pair[0][0].source} | {few['num-layers']}, {many['num-layers']} | {few['hidden-size']} | {few['micro-batch-size']} | "
                     f"{1e3 * took:.2f} | {100 * shares[-1]:.0f} % | {1e3 * predicted:.2f} | {1e3 * once:.2f} |")
    lines += ["", f"{nearer} of these {len(pairs)} layers took nearer to the time predicted without recompute than to the one with it."]
    if a100:
        best = max(a100, key=lambda row: executed(row) / row.measured["time"])
        lines += [f"The largest share of the peak above is {100 * max(shares):.0f} %. Over a whole iteration the other runs on A100 reach "
                  f"{100 * executed(best) / best.measured['time']:.0f} % at most, recompute counted ({best.id}, layers of "
                  f"{best.record['arguments']['hidden-size']})."]
    for source in sources:
        errors = [row.error("time") for row in plain if row.source == source and row.measured["time"]]
        costs = [cost[0] for cost in regrets(plain).get(source, [])]
        regret = f"; the mean regret is {100 * mean(costs):.2f} %" if costs else ""
        lines.append(f"Predicted without recompute all runs of {source} have a mean error of {100 * mean(list(map(abs, errors))):.2f} %, "
                     f"a bias of {100 * mean(errors):+.2f} %{regret}.")
    return lines + LAYER_REMARK


def without_bubble(row, seconds):
    given = row.record["arguments"]
    m, pp = microbatches(row.record), number(given, "pipeline-model-parallel-size")
    return seconds * m / (m + pp - 1)


def spread(values):
    return max(values) / min(values) - 1


def micro_batch_groups(rows):
    """[(rows, measured spread, predicted spread)] of layouts run at three micro batches or more, for which little is predicted."""
    found = []
    for group in grouped(rows, ("micro-batch-size",), lambda record: record["world"]):
        given = group[0].record["arguments"]
        sizes = {row.record["arguments"].get("micro-batch-size") for row in group}
        if len(sizes) < 3 or None in sizes or number(given, "num-virtual-stages-per-pipeline-rank") > 1 or "global-batch-size" not in given:
            continue
        measured = spread([without_bubble(row, row.measured["time"]) for row in group])
        predicted = spread([without_bubble(row, row.predicted["time"]) for row in group])
        if predicted < LITTLE:
            found.append((group, measured, predicted))
    return found


def micro_batch_section(rows):
    found = micro_batch_groups(rows)
    if not found:
        return []
    lines = ["### The same layout at other micro batches", "",
             "The time of one layout without its bubble, t·m/(m + pp - 1), hardly depends on the micro batch where kernels are large. Layouts run",
             f"at three micro batches or more for which the prediction moves by less than {100 * LITTLE:.0f} %: how much slower the slowest is than "
             "the fastest.", "",
             "| source | job | layout | micro batches | measured spread | predicted spread |", "|---|---|---|---|---:|---:|"]
    order = ("tensor-model-parallel-size", "pipeline-model-parallel-size")
    for group, measured, predicted in sorted(found, key=lambda one: (one[0][0].source, one[0][0].record["world"],
                                                                     [number(one[0][0].record["arguments"], name) for name in order])):
        sizes = sorted({row.record["arguments"]["micro-batch-size"] for row in group})
        layout = " ".join(word for word in group[0].layout_name.split() if not word.startswith("mbs")).replace("all 1", "") or "dp alone"
        lines.append(f"| {group[0].source} | {group[0].job} | {layout} | {', '.join(map(str, sizes))} | {100 * measured:.0f} % | {100 * predicted:.0f} % |")
    calm = sum(1 for _, measured, _ in found if measured < LITTLE)
    wild = [(group, measured) for group, measured, _ in found if measured > MUCH]
    lines += ["", f"Measured, {calm} of these {len(found)} layouts stay below {100 * LITTLE:.0f} % as well; {len(wild)} exceed {100 * MUCH:.0f} %."]
    for source in sorted({group[0].source for group, _ in wild}):
        left_out = {row.id for group, _ in wild for row in group if row.source == source}
        errors = [row.error("time") for row in rows if row.source == source and row.id not in left_out and row.measured["time"]]
        lines.append(f"Without the latter's {len(left_out)} runs the mean error of {source} is {100 * mean(list(map(abs, errors))):.2f} %, "
                     f"its bias {100 * mean(errors):+.2f} % (n {len(errors)}).")
    return lines


def doubled(rows):
    """[(row, row with twice its micro batch)] that agree in all else."""
    pairs = []
    for group in grouped(rows, ("micro-batch-size",), lambda record: record["world"]):
        if microbatches(group[0].record) is None or number(group[0].record["arguments"], "num-virtual-stages-per-pipeline-rank") > 1:
            continue
        by_size = {row.record["arguments"]["micro-batch-size"]: row for row in group}
        pairs += [(by_size[size], by_size[2 * size]) for size in sorted(by_size) if 2 * size in by_size]
    return pairs


def saved(pair, seconds):
    """By how much less the larger of two microbatches takes, forward, backward and its share of the update; negative where it takes more."""
    small, large = (without_bubble(row, seconds(row)) / microbatches(row.record) for row in pair)
    return 1 - large / small


def doubled_section(rows, regrets):
    lines = ["### Twice the tokens in less time", "",
             "A microbatch of twice the tokens takes as many kernels, and hardly any is shorter. Pairs of runs that differ in that alone, by their",
             "time a microbatch, t/(m + pp - 1): how many took less time for twice the tokens, and how much less at most.", "",
             "| source | pairs | measured | at most | predicted | at most |", "|---|---:|---:|---:|---:|---:|"]
    remarks, foreseen = [], False
    pairs = doubled(rows)
    for source in sorted({small.source for small, _ in pairs}):
        some = [pair for pair in pairs if pair[0].source == source]
        took = [saved(pair, lambda row: row.measured["time"]) for pair in some]
        said = [saved(pair, lambda row: row.predicted["time"]) for pair in some]
        if max(took) <= 0:
            continue
        cells = " | ".join(f"{sum(gain > 0 for gain in gains)} | {100 * max(0, *gains):.0f} %" for gains in (took, said))
        lines.append(f"| {source} | {len(some)} | {cells} |")
        foreseen = foreseen or max(said) > 0
        odd = {large.id for (_, large), gain, expected in zip(some, took, said) if gain > 0 >= expected}
        costs = [cost[0] for cost in regrets([row for row in rows if row.source == source and row.id not in odd]).get(source, [])]
        if odd and costs:
            remarks.append(f"Without the {len(odd)} runs that took less against the prediction the mean regret of {source} is "
                           f"{100 * mean(costs):.2f} %, the largest {100 * max(costs):.2f} %.")
    if lines[-1].startswith("|---"):
        return []
    if foreseen:
        remarks.insert(0, "It is predicted where PyTorch's softmax takes the smaller microbatch, whose shape Megatron-LM's own does not take.")
    return [*lines, "", *remarks]


def older_software_section(rows, simulate_all):
    old = [row for row in rows if row.source in SYNCHRONOUS and row.measured["time"]]
    if not old:
        return []

    def moved(row):
        """A reduce-scatter runs beside the weight gradient whatever the flag says."""
        given = row.record["arguments"]
        return number(given, "tensor-model-parallel-size") > 1 and not given.get("sequence-parallel")

    exposed = [row.record | {"arguments": row.record["arguments"] | {SYNCHRONOUS_FLAG: True}} for row in old if moved(row)]
    again = {row.id: row for row in simulate_all(exposed)[0]}
    lines = ["### Software that hides no input gradient", "",
             "Megatron-LM of 2020 and 2021 and Megatron-DeepSpeed as of 2022 reduce the input gradients of tensor parallel layers behind the weight",
             "gradients; later Megatron-LM does it beside them, and so do the predictions above, for no argument of these records says which. With",
             f"`--{SYNCHRONOUS_FLAG}`, which exposes these all-reduces:", "",
             "| source | software | n | mean | bias | mean, exposed | bias, exposed |", "|---|---|---:|---:|---:|---:|---:|"]
    for source in sorted({row.source for row in old}):
        some = [row for row in old if row.source == source]
        before, after = [row.error("time") for row in some], [again.get(row.id, row).error("time") for row in some]
        cells = [f"{100 * figure:{sign}.2f}" for errors in (before, after) for figure, sign in ((mean(list(map(abs, errors))), ""), (mean(errors), "+"))]
        lines.append(f"| {source} | {SYNCHRONOUS[source]} | {len(some)} | {' | '.join(cells)} |")
    return lines


def used(row):
    """Measured model FLOP utilisation, by the FLOPs of the prediction."""
    return row.mfu * row.predicted["time"] / row.measured["time"]


def mixture_section(rows):
    """Mixtures that are missed by a tenth and more, beside dense models on the same GPUs."""
    timed = [row for row in rows if row.measured["time"]]
    missed = [row for row in timed if row.record.get("moe") and abs(row.error("time")) >= 0.10]
    lines = []
    for cluster in sorted({row.record["cluster"] for row in missed}):
        dense = [used(row) for row in timed if row.record["cluster"] == cluster and not row.record.get("moe")]
        if not dense:
            continue
        for row in missed:
            if row.record["cluster"] == cluster:
                lines.append(f"| {row.id} | {cluster} | {row.measured['time']:.2f} | {row.predicted['time']:.2f} | {row.kernels:.2f} | "
                             f"{100 * used(row):.1f} % | {100 * row.mfu:.1f} % | {100 * min(dense):.1f} to {100 * max(dense):.1f} % (n {len(dense)}) |")
    if not lines:
        return []
    return ["### Mixtures missed by a tenth and more", "",
            "Seconds of an iteration; of its kernels alone, as predicted, all communication hidden and nothing waiting for the host; and the share",
            "of the peak that the model's FLOPs make up, beside dense models on the same GPUs.", "",
            "| record | cluster | measured | predicted | kernels alone | measured MFU | predicted MFU | dense, measured |",
            "|---|---|---:|---:|---:|---:|---:|---:|", *lines, "",
            *MIXTURE_REMARK]


def sections(rows, simulate_all, regrets):
    """Lines of Markdown. `simulate_all(records)` gives rows and failures, `regrets(rows)` what score makes of them."""
    found = [layer_section(rows, simulate_all, regrets), micro_batch_section(rows), doubled_section(rows, regrets),
             older_software_section(rows, simulate_all), mixture_section(rows)]
    return [line for section in found if section for line in (*section, "")]
