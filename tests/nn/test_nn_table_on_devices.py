"""Every module of the table on the strict device double: results, gradients and buffers are the
CPU's, and from the second call on nothing is copied between host and device, or waited for."""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from support.cases import nn_cases

LOOKS = {"BatchNorm2d-3-affine=False-momentum=None"}  # divides by a counter, which PyTorch reads


def leaves(out):
    """Outputs as a flat list of tensors."""
    if isinstance(out, (tuple, list)):
        return [t for part in out for t in leaves(part)]
    return [] if out is None else [out]


def made(case, device):
    """The module, with parameters away from zero, and its inputs, on the device."""
    dt.manual_seed(0)
    module = getattr(nn, case.name)(*case.args, **case.kwargs).double()
    rng = np.random.default_rng(3)
    for p in module.parameters():
        p.data = core.wrap(p.detach().numpy() + rng.normal(size=tuple(p.shape)) * 0.1)
    inputs = [core.wrap(np.array(a)).to(device).requires_grad_(w) for a, w in case.arrays()]
    return module.to(device), inputs


def numbers(case, device, twice):
    """Outputs, gradients and buffers of two calls; ``twice`` is around the second."""
    module, inputs = made(case, device)
    weights: list = []
    for around in (contextlib.nullcontext, twice):
        with around():
            outs = leaves(module(*inputs, **case.call))
        if not weights:
            cosines = [np.cos(np.arange(o.numel()) + i) for i, o in enumerate(outs)]
            weights = [
                core.wrap(c.reshape(tuple(o.shape))).to(device) for c, o in zip(cosines, outs)
            ]
        with around():
            total = sum((o * w).sum() for o, w in zip(outs, weights, strict=True))
            if total.requires_grad:
                total.backward()
    gradients = [t.grad for t in [*inputs, *module.parameters()]]
    found = [*outs, *gradients, *module.buffers()]
    return [None if t is None else t.detach().cpu().numpy() for t in found]


@pytest.mark.parametrize("case", nn_cases.ALL, ids=lambda c: c.id)
def test_modules_compute_there_what_they_compute_here(double, case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = numbers(case, "cpu", double.quiet)
        got = numbers(case, "cuda", contextlib.nullcontext if case.id in LOOKS else double.quiet)
    for g, w in zip(got, want, strict=True):
        assert (g is None) == (w is None)
        if w is not None:
            assert (g.shape, g.dtype) == (w.shape, w.dtype)
            np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-11)


def test_numbers_that_follow_from_shapes_are_copied_once(double):
    x = core.wrap(np.zeros((1, 1, 4, 4), np.float32)).to("cuda")
    pad = nn.ReflectionPad2d(1)
    pad(x)
    assert double.counts.uploads > 1
    with double.quiet():
        pad(x)
    with double.on(double.stream(0)):  # another stream has copies of its own: none waits for them
        pad(core.wrap(np.zeros((1, 1, 4, 4), np.float32)).to("cuda"))
