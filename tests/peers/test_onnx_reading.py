"""All of ONNX's own cases, models drawn beside onnxruntime, and damaged models: of all these
``tests/onnx`` runs a few, this file a share, and all with ALL_DRAWS=1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import disttrain as dt
from support.draws import share
from support.onnx_backend import cases, check, is_left_out
from support.onnx_hostile import KINDS, attack
from support.onnx_models import drawn, ours, theirs

pytestmark = pytest.mark.peer


@pytest.mark.timeout(300)
def test_the_cases_of_onnx():
    failed = {}
    for name in share(sorted(cases()), 6):
        if not is_left_out(name):
            try:
                check(name)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {str(error)[:200]}"
    assert not failed
    held = sum(not is_left_out(name) for name in cases())
    assert held > 0.98 * len(cases())


@pytest.mark.parametrize("first", range(1000, 1300, 50))
def test_drawn_models_are_those_of_onnxruntime(first):
    for seed in share(range(first, first + 50), 6):
        found, differences = drawn(seed, ours, theirs, version=20 if seed % 3 else 13)
        assert not differences, [d[:4] for d in differences]
        assert found.nodes


LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


@pytest.mark.parametrize("path", share(sorted(LIGHT.glob("*.onnx")), 2), ids=lambda p: p.stem)
def test_public_models_compute_what_comes_with_them(path):
    """AlexNet, DenseNet, Inception, ResNet, ShuffleNet, SqueezeNet, VGG, ZFNet."""
    loaded = dt.onnx.load(path)
    feeds = {}
    for p in loaded.inputs:
        count = int(np.prod(p.shape))
        feeds[p.name] = (np.arange(count).reshape(p.shape) / count).astype(np.float32)
    (found,) = loaded.run(feeds).values()
    saved = path.with_name(f"{path.stem}_output_0.pb").read_bytes()
    want = numpy_helper.to_array(onnx.TensorProto.FromString(saved))
    assert np.allclose(found, want, rtol=1e-3, atol=1e-5)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_models_are_refused_or_run(kind):
    outcomes = attack(kind, share(range(1000, 2250), 5))
    assert set(outcomes) <= {"ran", "refused", "not run"}
