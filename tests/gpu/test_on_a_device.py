"""What needs a GPU: the parts of ``scripts/gpu`` that do not measure, each as a test.

    scripts/test tests/gpu        # or scripts/gpu, which also measures and writes a report

Skipped, and told, where there is none: there the same parts are rehearsed on the stand-in
(tests/scripts/test_gpuproof_parts.py)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpuproof.parts import PARTS
from gpuproof.runner import run

ROOT = Path(__file__).parents[2]


@pytest.mark.gpu
@pytest.mark.timeout(400)
@pytest.mark.parametrize("part", [p for p in PARTS if not p.alone], ids=lambda p: p.name)
def test_a_part_of_the_proof(part, tmp_path, monkeypatch):
    paths = [
        str(ROOT),
        str(ROOT / "scripts"),
        str(ROOT / "tests"),
        os.environ.get("PYTHONPATH", ""),
    ]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    (outcome,) = run([part], "cuda", tmp_path, 300, 4)
    assert outcome.told.checks and outcome.state == "held", (outcome.told.failures, outcome.broken)
