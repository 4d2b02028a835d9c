"""How long a plan takes from Python and by the command: bench_plan.py MGPLAN [REPEATS]

Wall time, the two in turns so that both meet the same machine; of each the fastest and the median in milliseconds. Run it with the Python of
an environment that has the package; docs/measurements/ keeps results.
"""

import statistics
import subprocess
import sys
import time

import mgplan


def timed(function):
    began = time.perf_counter()
    function()
    return 1000 * (time.perf_counter() - began)


def main():
    program, repeats = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
    words = ["--world", "16", "--model", "llama3-8b", "--format", "json"]
    ways = {
        "the command": lambda: subprocess.run([program, *words], check=True, stdout=subprocess.DEVNULL),
        "mgplan.plan in a running Python": lambda: mgplan.plan("llama3-8b", 16),
        "a Python that imports and plans": lambda: subprocess.run([sys.executable, "-c", "import mgplan; mgplan.plan('llama3-8b', 16)"], check=True),
        "a Python that does nothing": lambda: subprocess.run([sys.executable, "-c", "pass"], check=True),
        "a Python that imports": lambda: subprocess.run([sys.executable, "-c", "import mgplan"], check=True),
    }
    for way in ways.values():
        way()
    taken = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            taken[name].append(timed(way))
    command = taken["the command"]
    print(f"{'plan of llama3-8b on 16':34} {'fastest':>8} {'median':>8} {'of the command':>15}")
    for name, each in taken.items():
        print(f"{name:34} {min(each):8.1f} {statistics.median(each):8.1f} {min(each) / min(command):15.2f}")


if __name__ == "__main__":
    main()
