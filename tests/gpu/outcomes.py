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


def begun_cluster(bundle):
    """Name of the cluster file that a calibration of this bundle's sources began."""
    return f"cluster-{bundle['sources']}.json.part"


def merged(earlier, later):
    """Parts of both, of one card; of a part that both have the later, unless of the same sources only the earlier passed."""
    if earlier["gpu"] != later["gpu"]:
        raise bundles.Refused(f"results of {earlier['gpu']} and of {later['gpu']} do not belong together; leave the earlier ones out of --earlier, or "
                      f"name another folder in OUT")
    result = {**earlier, **later, "parts": dict(earlier["parts"])}
    for name, part in later["parts"].items():
        before = earlier["parts"].get(name, {})
        if part["status"] == "passed" or part.get("again") or before.get("status") != "passed" or before.get("sources") != part["sources"]:
            result["parts"][name] = part
    if "cluster" not in later and "cluster" in earlier:
        result["cluster"] = earlier["cluster"]
    return result
