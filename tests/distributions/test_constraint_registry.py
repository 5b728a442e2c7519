"""From constraints to transforms onto them."""

from __future__ import annotations

import pytest

import disttrain as dt

D = dt.distributions
C = D.constraints
BOTH = [
    C.real, C.positive, C.nonnegative, C.greater_than(2.0), C.less_than(-1.0), C.unit_interval,
    C.interval(-2.0, 3.0), C.half_open_interval(1.0, 2.0), C.simplex, C.corr_cholesky,
    C.independent(C.positive, 1), C.stack([C.real, C.positive, C.unit_interval]),
    C.cat([C.real, C.positive], 0, [1, 2]),
]  # fmt: skip
ONTO = [C.lower_cholesky, C.positive_definite, C.positive_semidefinite]


@pytest.mark.parametrize("constraint", BOTH, ids=repr)
def test_bijections_lead_there(constraint):
    x = dt.tensor([0.3, -0.7, 1.1], dtype=dt.float64)
    t = D.biject_to(constraint)
    assert t.bijective and bool(constraint.check(t(x)).all())
    assert dt.allclose(t.inv(t(x)), x)
    assert bool(constraint.check(D.transform_to(constraint)(x)).all())


@pytest.mark.parametrize("constraint", ONTO, ids=repr)
def test_maps_onto(constraint):
    x = dt.tensor([[0.3, -0.7], [1.1, 0.2]], dtype=dt.float64)
    assert bool(constraint.check(D.transform_to(constraint)(x)))
    with pytest.raises(NotImplementedError, match="Cannot transform"):
        D.biject_to(constraint)


def test_new_ones_are_registered():
    registry = type(D.biject_to)()

    class Even(C.Constraint):
        pass

    @registry.register(Even)
    def make(constraint):
        return D.ExpTransform()

    assert registry(Even()) == D.ExpTransform()
    with pytest.raises(TypeError, match="Constraint subclass or instance"):
        registry.register(3, make)
