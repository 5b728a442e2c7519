"""Drawn compositions of transforms give JAX's values, types, trees and classes of errors."""

from __future__ import annotations

import numpy as np
import pytest
from peers.jax_programs import program

import disttrain.compat.jax as face

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.peer

# What has no derivative in forward mode is said in two ways, by how far it was staged.
_ALIKE = {"TypeError", "NotImplementedError"}


@pytest.fixture(autouse=True)
def wide():
    before = jax.config.jax_enable_x64
    for each in (jax, face):
        each.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)
    face.config.update("jax_enable_x64", False)


def run(text, library):
    names = {"jax": library, "jnp": library.numpy, "lax": library.lax, "np": np}
    try:
        exec(text, names)
    except Exception as error:
        return error, None, [], []
    leaves, form = library.tree_util.tree_flatten(names["result"])
    kinds = [
        (tuple(np.shape(x)) if not hasattr(x, "shape") else tuple(x.shape), str(x.dtype),
         bool(getattr(x, "weak_type", False)))
        for x in leaves
    ]  # fmt: skip
    return None, str(form), kinds, [np.asarray(x) for x in leaves if hasattr(x, "__array__")]


@pytest.mark.parametrize("seed", range(40))
def test_a_drawn_program(seed):
    text = program(seed)
    wanted, form, kinds, values = run(text, jax)
    error, our_form, our_kinds, ours = run(text, face)
    if wanted is not None or error is not None:
        ours_are = [c.__name__ for c in type(error).__mro__]
        both = {type(wanted).__name__, type(error).__name__}
        assert type(wanted).__name__ in ours_are or both == _ALIKE, (wanted, error)
        return
    assert our_form == form
    assert our_kinds == kinds
    close = 1e-4 if "float32" in text else 1e-9
    for a, b in zip(values, ours, strict=True):
        room = close * max(1.0, float(np.nanmax(np.abs(a)))) if a.size else close
        np.testing.assert_allclose(b, a, rtol=close, atol=room)
