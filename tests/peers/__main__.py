"""Look for differences at scale: python -m peers PROFILE ... --seeds 0:10000 (from tests/).

Differences are shrunk, grouped by their likely cause, and printed, the most frequent first.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import defaultdict

import torch
from peers.profiles import PROFILES, check


def cause(found) -> str:
    """A name for what differs: the kind, and the words of the last statements without numbers."""
    text = found.difference.where if "error" in found.difference.kind else found.lines[-1]
    words = re.findall(r"\.?[a-zA-Z_]{2,}\b|[-+*/%&|^<>=]=?", re.sub(r"v\d+ = ", "", text))
    ours = re.sub(r"[\d.]+|v\d+|\(.*", "", found.difference.ours)[:40]
    return " ".join(
        [found.difference.kind, *words[:4], ours if "error" in found.difference.kind else ""]
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m peers", description=__doc__)
    parser.add_argument("profiles", nargs="*", default=list(PROFILES))
    parser.add_argument("--seeds", default="0:1000", help="first:last")
    parser.add_argument("--each", type=int, default=1, help="examples shown of a cause")
    parser.add_argument("--all", action="store_true", help="deliberate differences too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    first, _, last = options.seeds.partition(":")
    for profile in options.profiles or PROFILES:
        groups, start = defaultdict(list), time.perf_counter()
        for seed in range(int(first), int(last)):
            found = check(profile, seed, use_deliberate=not options.all)
            if found:
                groups[cause(found)].append(found)
        seconds = time.perf_counter() - start
        total = sum(map(len, groups.values()))
        print(
            f"##### {profile}: {total} differences, {len(groups)} causes, {seconds:.1f} s",
            flush=True,
        )
        for name, group in sorted(groups.items(), key=lambda pair: -len(pair[1])):
            print(f"=== {len(group)} x {name}")
            for found in sorted(group, key=lambda f: len("".join(f.lines)))[: options.each]:
                print(found.report())
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
