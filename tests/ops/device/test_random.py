"""Dropout on devices, on the double: one launch, one mask forward and backward, in every walk."""

import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import amp, cuda, func
from disttrain.core import grad
from disttrain.core.backward.checkpoint import checkpoint
from disttrain.errors import DeviceError

pytestmark = pytest.mark.usefixtures("double")


def composed(x, p):
    """By a mask of its own, as inside transforms."""
    return func.vmap(lambda a: F.dropout(a, p), randomness="different")(x[None])[0]


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.float16, dt.bfloat16])
def test_one_launch_with_the_numbers_of_two(double, dtype):
    x = dt.randn(7, 5, device="cuda", dtype=dtype)
    for p in (0.3, 1.0):
        dt.manual_seed(3)
        double.counts.clear()
        got = F.dropout(x, p)
        assert (double.counts.codes, double.counts.launches) == (1, 0)
        assert cuda.default_generators[0].get_offset() == 4
        dt.manual_seed(3)
        assert got.dtype is dtype and dt.equal(got, composed(x, p))
        dt.manual_seed(3)
        turned = F.dropout(x.t().contiguous().t(), p)  # another order of memory
        assert dt.equal(turned, got)


def test_backward_has_the_same_mask(double):
    x = dt.full((40,), 3.0, device="cuda", requires_grad=True)
    y = F.dropout(x, 0.25)
    assert type(y.grad_fn).__name__ == "NativeDropoutBackward0"
    double.counts.clear()
    y.backward(dt.full((40,), 3.0, device="cuda"))
    assert double.counts.codes + double.counts.launches == 1 and not double.counts.waits
    assert dt.equal(x.grad, y.detach()) and set(y.tolist()) == {0.0, 4.0}
    (g,) = grad([F.dropout(x * x, 0.5).sum()], [x], create_graph=True)
    (again,) = grad([g.sum()], [x])
    assert dt.equal(again * 3, g.detach())


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_draw_it_again(reentrant):
    x = dt.ones(64, device="cuda", requires_grad=True)
    out = checkpoint(lambda x: F.dropout(x, 0.5) * x, x, use_reentrant=reentrant)
    after = dt.rand(3, device="cuda")
    out.sum().backward()
    assert dt.equal(x.grad != 0, out.detach() != 0)
    assert dt.rand(3, device="cuda").tolist() != after.tolist()


def test_vmap_and_autocast(double):
    x = dt.ones(4, 32, device="cuda")
    same = func.vmap(lambda a: F.dropout(a, 0.5), randomness="same")(x)
    own = func.vmap(lambda a: F.dropout(a, 0.5), randomness="different")(x)
    assert dt.equal(same[0], same[1]) and not dt.equal(own[0], own[1])
    plain = func.vmap(lambda a: a * F.dropout(x[0], 0.5), randomness="different")(x)
    assert not dt.equal(plain[0], plain[1])
    with pytest.raises(RuntimeError, match="randomness"):
        func.vmap(lambda a: F.dropout(a, 0.5))(x)
    with amp.autocast("cuda", dtype=dt.bfloat16):
        double.counts.clear()
        assert F.dropout(x, 0.5).dtype is dt.float32
        assert (double.counts.codes, double.counts.launches) == (1, 0)
    layer = dt.nn.Dropout(0.5, inplace=True)
    y = x.clone()
    assert layer(y) is y and set(y.reshape(-1).tolist()) == {0.0, 2.0}


def test_distributions_without_a_sampler_say_so():
    shapes = dt.ones(3, device="cuda")
    for draw in (dt.distributions.Gamma(shapes, 1.0), dt.distributions.Binomial(4, shapes / 2),
                 dt.distributions.VonMises(shapes, shapes)):  # fmt: skip
        with pytest.raises(DeviceError, match="draw on the CPU"):
            draw.sample()
        assert draw.log_prob(shapes * 0 + 1).is_cuda
