"""Every module of the table: gradients against differences, everything against PyTorch."""

import warnings

import numpy as np
import pytest

from disttrain import core, nn
from disttrain.core.types import dtypes
from support.cases import nn_cases

CASES = pytest.mark.parametrize("case", nn_cases.ALL, ids=lambda c: c.id)


def tensors(case):
    """The inputs as tensors."""
    return [core.wrap(np.array(a)).requires_grad_(wanted) for a, wanted in case.arrays()]


def build(case):
    return getattr(nn, case.name)(*case.args, **case.kwargs).double()


def leaves(out):
    """Outputs as a flat list of tensors."""
    if isinstance(out, (tuple, list)):
        return [t for part in out for t in leaves(part)]
    return [] if out is None else [out]


def loss_of(out):
    """A scalar that looks at every element of every output."""
    total = 0
    for i, t in enumerate(leaves(out)):
        weights = np.cos(np.arange(t.numel()) + i).reshape(tuple(t.shape))
        total = total + (t * core.wrap(np.asarray(weights))).sum()
    return total


def run(module, case, inputs):
    return loss_of(module(*inputs, **case.call))


def fresh(case):
    """A module whose parameters are away from zero (where biases start) but not large."""
    module = build(case)
    rng = np.random.default_rng(3)
    for p in module.parameters():
        p.data = core.wrap(p.detach().numpy() + rng.normal(size=tuple(p.shape)) * 0.1)
    return module


@CASES
def test_gradients_are_those_of_differences(case):
    module, inputs = fresh(case), tensors(case)
    leaves_in = [t for t in inputs if t.requires_grad] + list(module.parameters())
    if not leaves_in:
        assert not run(module, case, inputs).requires_grad
        return
    run(module, case, inputs).backward()
    rng = np.random.default_rng(5)
    step = 1e-6
    for leaf in leaves_in:
        direction = rng.normal(size=tuple(leaf.shape))
        start = leaf.detach().numpy().copy()
        ends = []
        for sign in (1, -1):
            leaf.data = core.wrap(np.asarray(start + sign * step * direction))
            with core.no_grad():
                ends.append(run(module, case, inputs).item())
        leaf.data = core.wrap(start)
        expected = (ends[0] - ends[1]) / (2 * step)
        found = 0.0 if leaf.grad is None else float((leaf.grad.numpy() * direction).sum())
        if case.kwargs.get("padding_idx") and leaf is module.weight:
            continue  # the padding row has no gradient on purpose
        assert found == pytest.approx(expected, rel=2e-5, abs=2e-6), leaf.shape


@CASES
@pytest.mark.peer
def test_equals_pytorch(case):
    import torch

    ours = fresh(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = getattr(torch.nn, case.name)(*case.args, **case.kwargs).double()
        state = ours.state_dict()
        assert list(state) == list(theirs.state_dict())
        theirs.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in state.items()})
        inputs = tensors(case)
        peers = [torch.tensor(a).requires_grad_(wanted) for a, wanted in case.arrays()]
        got = leaves(ours(*inputs, **case.call))
        want = leaves(theirs(*peers, **case.call))
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g.detach().numpy(), w.detach().numpy(), rtol=1e-6, atol=1e-8)
    loss_of(got).backward()
    sum((w * torch.cos(torch.arange(w.numel()) + i).reshape(w.shape)).sum()
        for i, w in enumerate(want)).backward()  # fmt: skip
    for mine, peer in [*zip(inputs, peers, strict=True),
                       *zip(ours.parameters(), theirs.parameters(), strict=True)]:  # fmt: skip
        if peer.grad is not None:
            found = np.zeros(tuple(mine.shape)) if mine.grad is None else mine.grad.numpy()
            np.testing.assert_allclose(found, peer.grad.numpy(), rtol=1e-5, atol=1e-7)
    for (name, mine), peer in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        np.testing.assert_allclose(mine.numpy(), peer.numpy(), rtol=1e-6, err_msg=name)
    if case.name != "Upsample":
        text = repr(theirs).replace("NonDynamicallyQuantizableLinear", "Linear")
        assert repr(ours) == text


@CASES
def test_runs_in_evaluation_and_on_meta(case):
    module = build(case).eval()
    inputs = tensors(case)
    with core.no_grad():
        shapes = [tuple(t.shape) for t in leaves(module(*inputs, **case.call))]
    on_meta = getattr(nn, case.name)(*case.args, **case.kwargs).double().eval().to("meta")
    assert all(p.is_meta for p in on_meta.parameters())
    data_dependent = case.name in ("Identity",)
    if not data_dependent:
        with core.no_grad():
            got = leaves(on_meta(*[t.detach().to("meta") for t in inputs], **case.call))
        assert [tuple(t.shape) for t in got] == shapes
    assert all(t.dtype is dtypes.float64 for t in module.parameters())
