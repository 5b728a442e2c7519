"""Programs drawn at random (``generator``) give with ``tf.function`` what they give without it.
Their numbers were TensorFlow 2.21's for the seeds 0 to 150."""

from __future__ import annotations

import pytest
from compat.tensorflow.generator import program

from disttrain.compat import tensorflow as tf


def ran(seed, decorate, tmp_path):
    path = tmp_path / f"{seed}_{decorate.__name__}.py"  # (AutoGraph reads it there)
    path.write_text(program(seed))
    names = {"tf": tf, "DEC": decorate}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return [v.numpy().tolist() for v in tf.nest.flatten(names["OUT"])]


def plain(function):
    return function


@pytest.mark.parametrize("seed", range(12))
def test_traced_programs_give_the_same(seed, tmp_path):
    assert ran(seed, tf.function, tmp_path) == pytest.approx(
        ran(seed, plain, tmp_path), rel=1e-5, abs=1e-6
    )
