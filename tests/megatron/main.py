"""The oracle's commands. Started by tests/megatron/run, which sets up its Python."""

import argparse
import sys
import time
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "build"


def judge_command(options):
    import jobs
    import oracle
    import server

    commands = []
    for path in options.files:
        words, environment = jobs.read(path)
        commands.append(oracle.Command(jobs.with_users_own(words) if not options.as_it_is else words, options.world, jobs.capability_of(options.cluster),
                                       environment | dict(pair.split("=", 1) for pair in options.set), options.pipeline_ranks))
    refused = 0
    for index, verdict in server.judge_all(commands, options.workers):
        print(f"{options.files[index]}: {verdict.line()}", flush=True)
        refused += not verdict.accepted
    return 2 if refused else 0


def daily_command(options):
    import daily

    return daily.run(options.mgplan, options.folder, options.workers)


def snapshots_command(options):
    import snapshots

    return snapshots.run(options.mgplan)


def large_command(options):
    import large

    return large.run(options)


def main():
    parser = argparse.ArgumentParser(prog="tests/megatron/run", description=__doc__)
    parser.add_argument("--workers", type=int, default=2, help="processes at a time (default: 2)")
    commands = parser.add_subparsers(required=True)
    judge = commands.add_parser("judge", help="puts exported .sh or .yaml files through Megatron-LM")
    judge.add_argument("files", nargs="+")
    judge.add_argument("--world", type=int, required=True)
    judge.add_argument("--cluster", default="dgx-h100", help="whose GPUs answer (default: dgx-h100)")
    judge.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a variable of the environment besides those of the file")
    judge.add_argument("--pipeline-ranks", default="some", choices=["some", "all", "none"], help="whose chunks are built (default: first, middle and last)")
    judge.add_argument("--as-it-is", action="store_true", help="adds no tokenizer, data and length of training")
    judge.set_defaults(run=judge_command)
    test = commands.add_parser("daily", help="what ctest runs: exports, random commands, parameters, schedules, buffers")
    test.add_argument("--mgplan", default=BUILD / "release/bin/mgplan", help="the program to test (default: that of build/release)")
    test.add_argument("--folder", default=BUILD / "megatron/daily", help="for plans and scripts (default: build/megatron/daily)")
    test.set_defaults(run=daily_command)
    snapshots = commands.add_parser("snapshots", help="draws mgplan's memory snapshots with torch's functions")
    snapshots.add_argument("--mgplan", default=BUILD / "release/bin/mgplan", help="the program to test (default: that of build/release)")
    snapshots.set_defaults(run=snapshots_command)
    large = commands.add_parser("large", help="the long comparison; writes docs/measurements/megatron-oracle.md")
    large.add_argument("--mgplan", default=BUILD / "release/bin/mgplan", help="the program to test (default: that of build/release)")
    large.add_argument("--folder", default=BUILD / "megatron/large", help="for plans, scripts and verdicts (default: build/megatron/large)")
    for name, default in (("commands", 2000), ("first-seed", 10000), ("layouts", 20), ("schedules", 200), ("buffers", 60), ("seed", 2)):
        large.add_argument(f"--{name}", type=int, default=default, help=f"(default: {default})")
    large.add_argument("--no-training", dest="training", action="store_false", help="leaves out the training steps of tiny models")
    large.add_argument("--minutes", type=float, help="commands, and layouts, that are begun within these minutes alone (default: all)")
    large.add_argument("--reuse", action="store_true", help="writes the page again from the verdicts that the last run left in the folder")
    large.set_defaults(run=large_command)
    options = parser.parse_args()
    began = time.monotonic()
    code = options.run(options)
    print(f"{time.monotonic() - began:.1f} s", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
