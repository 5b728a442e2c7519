"""How parameters are taken: broadcast, converted, kept lazily; triangles as vectors."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.distributions import parameters as p


def test_numbers_follow_tensors():
    a, b = p.broadcast_all(1, dt.zeros(2, dtype=dt.float64))
    assert a.dtype is b.dtype is dt.float64 and a.shape == (2,)
    assert p.broadcast_all(1)[0].dtype is dt.float32
    with pytest.raises(ValueError, match="must all be instances of Number"):
        p.broadcast_all("a", 1.0)
    with pytest.raises(RuntimeError):
        p.broadcast_all(dt.zeros(2), dt.zeros(3))


def test_probabilities_and_logits():
    probs = dt.tensor([0.2, 0.8])
    assert dt.allclose(p.logits_to_probs(p.probs_to_logits(probs, True), True), probs)
    assert dt.allclose(p.logits_to_probs(p.probs_to_logits(probs)), probs)
    assert bool(p.probs_to_logits(dt.tensor([0.0, 1.0]), True).isfinite().all())


def test_a_lazy_property_is_computed_once_and_with_gradients():
    x = dt.ones(1, requires_grad=True)

    class Holder:
        @p.lazy_property
        def y(self):
            """Twice x."""
            return 2 * x

    h = Holder()
    with dt.no_grad():
        y = h.y
    assert h.y is y and y.requires_grad and isinstance(Holder.y, property)
    assert Holder.y.__doc__ == "Twice x."


def test_triangles():
    m = dt.arange(9.0).reshape(3, 3)
    for diag, count in ((0, 6), (-1, 3), (1, 8)):
        v = p.tril_matrix_to_vec(m, diag)
        assert v.shape == (count,)
        assert p.vec_to_tril_matrix(v, diag).tolist() == m.tril(diag).tolist()
    with pytest.raises(ValueError, match="cannot be expressed"):
        p.vec_to_tril_matrix(dt.zeros(5))
    with pytest.raises(ValueError, match="outside"):
        p.tril_matrix_to_vec(m, 3)


def test_validity_within_transforms_is_that_of_the_whole_batch():
    def density(m, x):
        return dt.distributions.Normal(m, dt.ones_like(m)).log_prob(x)

    m, x = dt.arange(3.0), dt.ones(3)
    assert dt.equal(dt.func.vmap(density)(m, x), density(m, x))
    assert dt.func.vmap(dt.func.grad(density))(m, x).tolist() == [1.0, 0.0, -1.0]
    assert dt.equal(dt.compile(dt.func.vmap(density))(m, x), density(m, x))
    with pytest.raises(ValueError, match="Expected value argument"):
        dt.func.vmap(lambda a: dt.distributions.Exponential(a).log_prob(-a))(x)
    with pytest.raises(ValueError, match="Expected parameter scale"):
        dt.func.vmap(lambda a: dt.distributions.Normal(a, a))(m)
