"""Distributions beside PyTorch's: densities, moments and derivatives at PyTorch's own samples,
divergences of every pair, what is shown and refused, transforms and where they lead."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import disttrain as dt
from support.cases.distribution_cases import CASES, IDS, made

pytestmark = [
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore:Singular sample"),
    pytest.mark.filterwarnings("ignore:Low df"),
]
PROPERTIES = "mean mode variance stddev".split()
# Where PyTorch computes in float32, or by polynomials of few digits.
ROUGH = {"VonMises": 1e-6, "Multinomial": 1e-7}
# What is compared no further: it takes the ends of an interval that fits for outside; a mode that
# is nan nearly everywhere.
DELIBERATE = {("ContinuousBernoulli", "Uniform"), ("Uniform", "ContinuousBernoulli")}


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def same(ours, theirs, rtol=1e-9, atol=1e-11):
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=rtol, atol=atol)
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]


def asked(of, which, args):
    found = getattr(of, which)
    return found(*args) if callable(found) else found


def both(which, ours, theirs, at=(), there=()):
    """What each gives, or (None, None) where PyTorch has none and neither have we."""
    try:
        want = asked(theirs, which, there)
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            asked(ours, which, at)
        return None, None
    return asked(ours, which, at), want


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
def test_numbers_and_derivatives(torch, name, params):
    torch.manual_seed(0)
    (ours, mine), (theirs, yours) = made(dt, name, params, True), made(torch, name, params, True)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert (ours.has_rsample, ours.has_enumerate_support) == (
        theirs.has_rsample, theirs.has_enumerate_support,
    )  # fmt: skip
    value = theirs.sample((4,)).detach()
    given = dt.tensor(value.numpy())
    for which in ("log_prob", "cdf", "entropy"):
        at = () if which == "entropy" else (given,)
        there = () if which == "entropy" else (value,)
        try:
            got, want = both(which, ours, theirs, at, there)
        except RuntimeError:  # PyTorch's own: two types met
            assert name == "GeneralizedPareto"
            continue
        if got is None:
            continue
        same(got, want, ROUGH.get(name, 1e-9))
        if not want.requires_grad:
            continue
        try:
            slopes = torch.autograd.grad(want.sum(), yours, allow_unused=True, retain_graph=True)
        except (NotImplementedError, RuntimeError):
            continue
        found = dt.autograd.grad(got.sum(), mine, allow_unused=True, retain_graph=True)
        for key, a, b in zip((k for k in params if isinstance(params[k], list)), found, slopes):
            if b is not None and not bool(torch.isnan(b).any()):
                a, b = (a.tril(), b.tril()) if key == "scale_tril" else (a, b)
                same(a, b, 10 * ROUGH.get(name, 1e-7), 1e-8)


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
def test_moments_supports_and_names(torch, name, params):
    (ours, _), (theirs, _) = made(dt, name, params), made(torch, name, params)
    for which in PROPERTIES:
        if (name, which) == ("Kumaraswamy", "mode"):
            continue
        got, want = both(which, ours, theirs)
        if got is not None:
            same(got, want, ROUGH.get(name, 1e-9))
    shown = lambda text: text.replace("disttrain.Size", "torch.Size").replace("disttrain.", "")
    assert shown(repr(ours)) == repr(theirs)
    assert type(ours.support).__name__ == type(theirs.support).__name__
    assert ours.support.event_dim == theirs.support.event_dim
    assert ours.support.is_discrete == theirs.support.is_discrete
    assert [b.__name__ for b in type(ours).__mro__ if b.__name__ == name] == [name]
    probability = np.full((3, *theirs.batch_shape), 0.37)
    got, want = both("icdf", ours, theirs, (dt.tensor(probability),), (torch.tensor(probability),))
    if got is not None:
        same(got, want)
    got, want = both("enumerate_support", ours, theirs)
    if got is not None:
        same(got, want)
    wide = ours.expand((5, *ours.batch_shape))
    assert tuple(wide.sample((2,)).shape) == (2, 5, *theirs.batch_shape, *theirs.event_shape)


def test_divergences_of_every_pair(torch):
    compared = 0
    for (a, p), (b, q) in itertools.product(CASES, CASES):
        if (a, b) in DELIBERATE:
            continue
        theirs = made(torch, a, p)[0], made(torch, b, q)[0]
        ours = made(dt, a, p)[0], made(dt, b, q)[0]
        try:
            want = torch.distributions.kl_divergence(*theirs)
        except NotImplementedError:
            with pytest.raises(NotImplementedError):
                dt.distributions.kl_divergence(*ours)
            continue
        except (RuntimeError, ValueError):
            continue
        if not fits(*(tuple(d.batch_shape) for d in theirs)):
            continue
        got = dt.distributions.kl_divergence(*ours)
        np.testing.assert_allclose(
            got.detach().numpy(),
            want.detach().numpy(),
            rtol=1e-6,
            atol=1e-9,
            err_msg=f"{a} {p} {b} {q}",
        )
        compared += 1
    assert compared > 120


def fits(one, other):
    return all(a == b or 1 in (a, b) for a, b in zip(one[::-1], other[::-1], strict=False))


TRANSFORMS = {
    "AbsTransform": (), "AffineTransform": (0.5, 2.0), "ExpTransform": (), "PowerTransform": (3.0,),
    "SigmoidTransform": (), "SoftplusTransform": (), "TanhTransform": (), "SoftmaxTransform": (),
    "StickBreakingTransform": (), "CorrCholeskyTransform": (), "LowerCholeskyTransform": (),
    "PositiveDefiniteTransform": (),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(torch, name):
    x = np.random.default_rng(0).uniform(0.1, 0.9, (2, 3, 3))
    ours, theirs = (getattr(m.distributions, name)(*TRANSFORMS[name]) for m in (dt, torch))
    y, want = ours(dt.tensor(x)), theirs(torch.tensor(x))
    same(y, want)
    same(ours.inv(y), theirs.inv(want), 1e-7)
    got, slope = both(
        "log_abs_det_jacobian", ours, theirs, (dt.tensor(x), y), (torch.tensor(x), want)
    )
    if got is not None:
        same(got, slope)
    assert repr(ours) == repr(theirs)
    assert (repr(ours.domain), repr(ours.codomain)) == (repr(theirs.domain), repr(theirs.codomain))
    assert tuple(ours.forward_shape((2, 3, 3))) == tuple(theirs.forward_shape((2, 3, 3)))


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
def test_registries(torch, registry):
    names = """real positive nonnegative unit_interval simplex real_vector lower_cholesky
    corr_cholesky positive_definite positive_semidefinite boolean one_hot symmetric""".split()
    at, there = (getattr(m.distributions, registry) for m in (dt, torch))
    for name in names:
        theirs = getattr(torch.distributions.constraints, name)
        ours = getattr(dt.distributions.constraints, name)
        got, want = both("__call__", at, there, (ours,), (theirs,))
        assert repr(got) == repr(want)
