"""Operations that a program defines."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compat.torch import library

pytestmark = pytest.mark.simulated
L = library.module()


@pytest.fixture(autouse=True)
def _forgotten():
    yield
    library._defined.clear()


def scale():
    @L.custom_op("mine::scale", mutates_args=())
    def op(x: dt.Tensor, factor: float = 2.0) -> dt.Tensor:
        """Times a factor."""
        return x * factor

    return op


def test_it_is_called_as_its_function():
    op = scale()
    assert op(dt.ones(2)).tolist() == [2.0, 2.0] and op(dt.ones(1), factor=3.0).item() == 3
    assert op.__doc__ == "Times a factor." and "mine::scale" in repr(op)


def test_its_gradient_is_what_is_registered():
    op = scale()
    x = dt.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        op(x).sum().backward()

    def setup(ctx, inputs, output):
        ctx.factor = inputs[1]

    op.register_autograd(lambda ctx, g: (g * ctx.factor * 10, None), setup_context=setup)
    op(x, 3.0).sum().backward()
    assert x.grad.tolist() == [30.0, 30.0]


def test_shapes_are_told_without_data():
    op = scale()
    op.register_fake(lambda x, factor=2.0: dt.empty(7, device=x.device))
    assert op(dt.empty(2, device="meta")).shape == (7,)
    L.register_fake("mine::scale", lambda x, factor=2.0: dt.empty(8, device=x.device))
    assert op(dt.empty(2, device="meta")).shape == (8,)


def test_a_library_of_schemas():
    lib = L.Library("other", "DEF")
    assert lib.define("inc(Tensor x, int n=1) -> Tensor") == "inc"
    with pytest.raises(NotImplementedError, match="nothing is registered for cpu"):
        library._defined["other::inc"](dt.ones(1))
    lib.impl("inc", lambda x, n=1: x + n, "CPU")
    lib.impl("inc", lambda x, n=1: dt.empty(3, device=x.device), "Meta")
    op = library._defined["other::inc"]
    assert op(dt.ones(1)).item() == 2 and op(dt.ones(1), 2).item() == 3
    assert op(dt.empty(1, device="meta")).shape == (3,)
    lib.impl("inc", lambda x, n=1: x - n, "Autograd")
    assert op(dt.ones(1)).item() == 0
    with pytest.raises(RuntimeError, match="no schema"):
        lib.define("no schema")
    lib._destroy()
    with pytest.raises(RuntimeError, match="no such operation"):
        L.register_autograd("other::inc", None)


def test_by_its_name():
    L.define("named::twice", "(Tensor x) -> Tensor")
    L.impl("named::twice", "CompositeExplicitAutograd", lambda x: x * 2)
    L.register_autograd("named::twice", lambda ctx, g: g * 2)
    x = dt.ones(1, requires_grad=True)
    library._defined["named::twice"](x).backward()
    assert x.grad.item() == 2

    @L.register_kernel("named::twice", ["cpu"])
    def faster(x):
        return x + x + 0.5

    assert library._defined["named::twice"](dt.ones(1)).item() == 2.5
