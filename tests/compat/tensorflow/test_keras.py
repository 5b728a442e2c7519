"""Keras' layers in TensorFlow's training loops, in a process of their own (Keras stays in one)."""

from __future__ import annotations

from pathlib import Path

from compat.tensorflow.test_program import run

PROGRAM = Path(__file__).parent / "keras_program.py"


def test_training_loops():
    done = run(str(PROGRAM))
    assert done.returncode == 0, done.stderr
    wanted = [line[4:].partition("(")[0] for line in PROGRAM.read_text().splitlines()
              if line.startswith("def test_")]  # fmt: skip
    assert done.stdout.split() == wanted
