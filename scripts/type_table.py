"""Ask PyTorch which type every operation gives, and store the answer for the tests.

    python scripts/type_table.py            (in an environment with PyTorch; writes the file)

The questions are in ``tests/support/cases/type_cases.py``; ``tests/ops/test_promotion.py`` puts
them to disttrain and needs no PyTorch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "tests" / "ops" / "data" / "types.json"


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    import torch

    from support.cases.type_cases import LETTERS, tables

    found = tables(torch)
    # Many operations have one table: each is written once, with the names of those that have it.
    shared: dict[str, list[str]] = {}
    for name, rows in found.items():
        shared.setdefault(rows, []).append(name)
    text = {
        "source": f"PyTorch {torch.__version__} on CPU, asked by scripts/type_table.py",
        "letters": LETTERS,
        "tables": [{"rows": rows, "names": names} for rows, names in shared.items()],
    }
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps(text, indent=0, sort_keys=True) + "\n")
    print(f"{len(found)} tables, {len(shared)} different ones, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
