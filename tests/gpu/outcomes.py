"""What run and take keep of a card: results of its parts, and a cluster file that was begun."""

import json
import os
from pathlib import Path

import bundle as bundles

RESULTS = "results.json"
VERSION = 1


def short_name(gpu):
    """"NVIDIA H100 80GB HBM3" -> "h100-80gb-hbm3": for names of files."""
    words = "".join(c if c.isalnum() or c in "._" else "-" for c in gpu.lower()).strip("-").split("-")
    return "-".join(word for word in words if word and word != "nvidia")


def load(path):
    """Results that run wrote. Raises Refused for anything else."""
    try:
        results = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise bundles.Refused(f"{path} cannot be read ({problem.strerror}); name a folder that tests/gpu/run wrote")
    except ValueError as problem:
        raise bundles.Refused(f"{path} is no JSON ({problem}); it was cut off on the way: fetch it again")
    if not isinstance(results, dict) or results.get("version") != VERSION or not isinstance(results.get("parts"), dict) \
            or not isinstance(results.get("gpu"), str) or not results["gpu"]:
        raise bundles.Refused(f"{path} is no result of tests/gpu/run (version {VERSION}, gpu, parts); name the folder that it wrote")
    return results


def save(results, path):
    """Whole or as it was before, whenever the program is stopped."""
    part = Path(f"{path}.part")
    part.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)


def kept_folder(gpu, root=bundles.ROOT):
    """Where results of this kind of card are kept, those of several commands together."""
    return root / "build" / "gpu-results" / short_name(gpu)


def committed(gpu, root=bundles.ROOT):
    """What take puts into the tree of them, for those who have no more than the tree."""
    return root / "docs" / "measurements" / f"{short_name(gpu)}.results.json"


def measured_cluster(gpu, root=bundles.ROOT):
    """The preset that take writes once the card was calibrated."""
    return root / "configs" / "clusters" / f"{short_name(gpu)}-measured.json"


def begun_cluster(bundle):
    """Name of the cluster file that a calibration of this bundle's sources began."""
    return f"cluster-{bundle['sources']}.json.part"


def measured_before(part):
    """What a part that is left out keeps of what it measured earlier: the data, and which sources they are of."""
    if not part or part.get("data") is None:
        return {}
    return {"data": part["data"], "measured": part.get("measured") or {key: part.get(key, "") for key in ("sources", "commit", "at")}}


def of_both(one, other):
    """The newer of two verdicts on a part; the older where it passed on the same sources, or where the newer is none on them."""
    older, newer = sorted((one, other), key=lambda part: part.get("at", ""))
    same = older.get("sources") == newer.get("sources")
    if same and not newer.get("again") and newer["status"] != "passed" and (older["status"] == "passed" or newer["status"] == "left out"):
        return older
    return {**newer, **measured_before(older)} if newer["status"] == "left out" and newer.get("data") is None else newer


def merged(one, other):
    """Two results of one kind of card, in any order: the newer of each part (of_both), the newest cluster file, all else of the newer."""
    if one["gpu"] != other["gpu"]:
        raise bundles.Refused(f"results of {one['gpu']} and of {other['gpu']} do not belong together; leave the earlier ones out of --earlier, or "
                              f"name another folder in OUT")

    def moment(results):
        return max([results.get("at", ""), *(part.get("at", "") for part in results["parts"].values())])
    older, newer = sorted((one, other), key=moment)
    result = {**older, **newer, "parts": dict(older["parts"])}
    for name, part in newer["parts"].items():
        result["parts"][name] = of_both(older["parts"][name], part) if name in older["parts"] else part
    clusters = sorted((each for each in (older, newer) if "cluster" in each), key=lambda each: each.get("cluster_of", {}).get("at", ""))
    for each in clusters[-1:]:
        result.update(cluster=each["cluster"], cluster_of=each.get("cluster_of", {}))
    return result


def all_of(paths, results):
    """These results with those of the files that are there."""
    for path in paths:
        if path.exists():
            results = merged(load(path), results)
    return results
