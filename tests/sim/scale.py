#!/usr/bin/env python3
"""Whether a simulated cluster costs its database and its ZooKeeper what PERFORMANCE.md ("What a cluster costs") says.

Usage: scale.py LEAFSIM [--nodes N,N] [--hours H]
"""

import argparse
import json
import os
import subprocess
import sys

SCENARIO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scale.toml")
# How far what was counted may be from the formula. Tasks are due a little later than they are planned.
TOLERANCE = 0.06


def formula(nodes, tags, refresh_s, grants_per_s):
    """Of a whole cluster, a second; the names are those of leafsim --costs."""
    others = nodes - 1
    records = others if others <= 64 else others / 12
    return {
        "statements": nodes * (1 + 2 / refresh_s) + 4 * grants_per_s,
        "rows": nodes * (1 + (tags + 2) / refresh_s) + 2 * grants_per_s,
        "reads": nodes * ((2 + records) / 5 + tags / refresh_s) + grants_per_s,
        "lists": nodes * 2 / 5,
        "names": nodes * nodes / 5,
        "writes": nodes * (1 / 5 + 4 / 5) + grants_per_s,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("leafsim", nargs="+", help="what starts it")
    parser.add_argument("--nodes", default="4,70", help="sizes of clusters (%(default)s)")
    parser.add_argument("--hours", type=float, default=0.1, help="simulated (%(default)s)")
    args = parser.parse_args()
    wrong = []
    for nodes in [int(number) for number in args.nodes.split(",")]:
        command = [*args.leafsim, "--quiet", "--costs", "--scenario", SCENARIO]
        command += ["--nodes", str(nodes), "--hours", str(args.hours)]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        counted = json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("{")))
        seconds = counted["seconds"]
        expected = formula(nodes, counted["tags"], counted["refresh_seconds"], counted["grants"] / seconds)
        print("%d nodes, %d tags, %.2f grants a second" % (nodes, counted["tags"], counted["grants"] / seconds))
        for name, rate in expected.items():
            had = counted[name] / seconds
            print("  %-10s %12.2f a second, by the formula %12.2f" % (name, had, rate))
            if abs(had - rate) > TOLERANCE * rate:
                wrong.append("%s of %d nodes: %.2f a second, by the formula %.2f" % (name, nodes, had, rate))
        sys.stdout.flush()
    for line in wrong:
        print("FAILED: " + line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
