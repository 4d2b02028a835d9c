"""The page of docs/measurements that tests/gpu/take writes."""

from speed import TORCH

LARGEST_OPS = 6  # of each plan


def milliseconds(seconds):
    return f"{1e3 * seconds:.2f}"


def data_of(results, name):
    return results["parts"].get(name, {}).get("data") or {}


def parts_section(results):
    lines = ["## What ran", "", "| part | verdict | commit | seconds | | clocks, power, temperature behind it |", "|---|---|---|---:|---|---|"]
    for name, part in results["parts"].items():
        text = part["why"].replace("|", "\\|").replace("\n", " ")
        if part.get("measured"):
            text += f"; what is shown of it was measured at {part['measured']['commit']}"
        lines.append(f"| {name} | {part['status']} | {part['commit']} | {part['seconds']:.0f} | {text} | {part['clocks']} |")
    return lines


def products_section(results):
    ours, theirs = data_of(results, "products") or [], data_of(results, "torch_products").get("products", [])
    if not ours:
        return []
    beside = {(p["m"], p["n"], p["k"]): p["tflops"] for p in theirs}
    lines = ["## Products", "", "Algorithms chosen by timing, and the library's first answer.", "",
             "| m x n x k | into fp32 | TFLOP/s | first answer | gain | PyTorch |", "|---|---|---:|---:|---:|---:|"]
    for p in ours:
        torch = "" if p["accumulate_fp32"] else beside.get((p["m"], p["n"], p["k"]))
        lines.append(f"| {p['m']} x {p['n']} x {p['k']} | {'yes' if p['accumulate_fp32'] else ''} | {p['tflops']:.0f} | "
                     f"{p['first_tflops']:.0f} | {100 * (p['tflops'] / p['first_tflops'] - 1):+.1f} % | "
                     f"{f'{torch:.0f}' if torch else ''} |")
    return lines


def layers_section(results):
    ours = data_of(results, "layers")
    if not ours:
        return []
    theirs = {kind: data_of(results, f"torch_{kind}").get("layers") for kind in TORCH}
    lines = [f"## Layers: {ours['model']}, {ours['micro_batch']} sequences of {ours['sequence']}", "",
             "| | ms a step | tokens/s | model TFLOP/s | mgplan has so many times the tokens |", "|---|---:|---:|---:|---:|",
             f"| mgplan | {ours['milliseconds']:.1f} | {ours['tokens_per_second']:.0f} | {ours['model_tflops']:.0f} | |"]
    for kind, each in theirs.items():
        if each:
            lines.append(f"| PyTorch, {kind} | {each['milliseconds']:.1f} | {each['tokens_per_second']:.0f} | {each['model_tflops']:.0f} | "
                         f"{ours['tokens_per_second'] / each['tokens_per_second']:.2f} |")
    if best := max((each["tokens_per_second"] for each in theirs.values() if each), default=0):
        lines += ["", f"Beside the best PyTorch: {ours['tokens_per_second'] / best:.2f} times the tokens. PyTorch's gradients are bf16, mgplan's "
                  "are summed in fp32."]
    off = [name for name, pair in ours["bytes"].items() if pair["predicted"] != pair["measured"]]
    return lines + ["", f"Bytes: {'every category as predicted' if not off else 'not as predicted: ' + ', '.join(off)}; peak "
                    f"{ours['peak_measured']:,}, predicted {ours['peak_predicted']:,}."]


def memory_section(results):
    steps = data_of(results, "memory_of_context") or []
    communicators = data_of(results, "nccl").get("bytes", {})
    if not steps and not communicators:
        return []
    lines = ["## Memory beside tensors", "", "| behind | bytes of the card taken |", "|---|---:|"]
    lines += [f"| {step['step']} | {step['bytes']:,} |" for step in steps]
    lines += [f"| NCCL, two processes: {what} | + {count:,} |" for what, count in communicators.items()]
    graphs = results.get("cluster", {}).get("calibration", {}).get("graphs", [])
    lines += [f"| a kernel in a graph of {g['kernels']} | {g['bytes'] / (g['graphs'] * g['kernels']):,.0f} |" for g in graphs]
    return lines


def predictions_section(results):
    judged = {name: part["data"] for name, part in results["parts"].items()
              if name.startswith(("rank_", "graphs_")) and part["data"] and "time" in part["data"]}
    if not judged:
        return []
    lines = ["## Predicted beside measured", "", "Of one rank: without its partners, communication left out on both sides (docs/calibration.md).",
             "", "| plan | predicted ms | measured ms | error | numbers of bytes that differ |", "|---|---:|---:|---:|---:|"]
    for name, data in judged.items():
        time = data["time"]
        lines.append(f"| {name} | {milliseconds(time['predicted_seconds'])} | {milliseconds(time['measured_seconds'])} | "
                     f"{100 * time['error']:+.1f} % | {len(data['bytes']['different'])} of {data['bytes']['fields']} |")
    errors = [abs(data["time"]["error"]) for data in judged.values() if data["time"]["judged"]]
    if len(errors) < len(judged):
        unjudged = [name for name, data in judged.items() if not data["time"]["judged"]]
        lines += ["", f"Not judged, for the reasons above: {', '.join(unjudged)}."]
    if errors:
        lines += ["", f"Mean error of those judged {100 * sum(errors) / len(errors):.1f} %, largest {100 * max(errors):.1f} %."]
    lines += ["", "| plan | part or op | count | predicted ms | measured ms |", "|---|---|---:|---:|---:|"]
    for name, data in judged.items():
        for part in data["time"]["parts"]:
            measured = part["measured_seconds"]
            lines.append(f"| {name} | {part['part']} | | {milliseconds(part['predicted_seconds'])} | "
                         f"{'' if measured is None else milliseconds(measured)} |")
        for op in data["time"]["ops"][:LARGEST_OPS]:
            predicted = op["predicted_seconds"]
            lines.append(f"| {name} | {op['op']} | {op['count']:.0f} | {'' if predicted is None else milliseconds(predicted)} | "
                         f"{milliseconds(op['measured_seconds'])} |")
    return lines


def graphs_section(results):
    measured = {}
    for name, part in results["parts"].items():
        if name.startswith("graphs_") and part["data"] and "time" in part["data"]:
            plan = part["data"]["plan"]["name"]
            measured.setdefault(plan, {})[name[len(f"graphs_{plan}_"):]] = part["data"]["time"]
    lines = []
    for plan, scopes in measured.items():
        if "none" not in scopes:
            continue
        for scope, time in scopes.items():
            lines.append(f"| {plan} | {scope} | {milliseconds(time['measured_seconds'])} | "
                         f"{scopes['none']['measured_seconds'] / time['measured_seconds']:.2f} | "
                         f"{scopes['none']['predicted_seconds'] / time['predicted_seconds']:.2f} |")
    head = ["## What CUDA graphs gain", "", "| plan | captured | measured ms | times as fast | predicted |", "|---|---|---:|---:|---:|"]
    return head + lines if lines else []


def text(results, date):
    card = data_of(results, "card")
    lines = [f"# {results['gpu']}, {date}", "",
             f"Written by tests/gpu/take from results of tests/gpu/run; mgplan at {results['bundle']['commit'] or 'an unknown commit'}, driver "
             f"{results['card']['driver']}, CUDA {card.get('cuda', '?')}, cuBLASLt {card.get('cublas_lt', '?')}, cuDNN {card.get('cudnn', '?')}, "
             f"NCCL {card.get('nccl', '?')}.", ""]
    for section in (parts_section, products_section, layers_section, memory_section, predictions_section, graphs_section):
        found = section(results)
        lines += [*found, ""] if found else []
    return "\n".join(lines)
