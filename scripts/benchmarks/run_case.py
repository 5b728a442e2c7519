"""``python -m benchmarks.run_case CASE LIBRARY``: run one case, print its rows as a JSON line."""

from __future__ import annotations

import importlib
import json
import os
import sys

from benchmarks.catalogue import CASES


def main(name: str, library: str) -> None:
    T = importlib.import_module(library)
    if library == "torch":
        T.set_num_threads(1)
    rows = CASES[name](T)
    if os.environ.get("RANK", "0") == "0":
        print("ROWS " + json.dumps(rows), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
