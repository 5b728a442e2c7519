"""The scaler of losses: which scale comes after which steps, and what it refuses."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

import disttrain as dt
from disttrain.amp import GradScaler
from disttrain.errors import AutogradError


def scaling(*args, **options):
    """A scaler that has scaled a loss, as it must before it steps."""
    scaler = GradScaler(*args, **options)
    scaler.scale(dt.ones(()))
    return scaler


def weight(grad=None, kind=dt.float32):
    w = dt.ones(2, dtype=kind, requires_grad=True)
    if grad is not None:
        w.grad = dt.tensor(grad, dtype=kind)
    return w


def step(scaler, grad):
    w = weight(grad)
    scaler.step(dt.optim.SGD([w], lr=1.0))
    scaler.update()
    return w.tolist()


def test_the_scale_grows_after_good_steps_in_a_row_and_shrinks_after_each_bad_one():
    scaler = scaling("cpu", 4.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=2)
    seen = []
    for good in (True, False, True, True, True, True, False, False):
        step(scaler, [1.0, 1.0 if good else math.nan])
        seen.append(scaler.get_scale())
    assert seen == [4.0, 1.0, 1.0, 3.0, 3.0, 9.0, 2.25, 0.5625]


def test_one_bad_optimizer_skips_its_own_step_and_shrinks_the_scale_for_all():
    scaler = scaling("cpu", 2.0)
    good, bad = weight([2.0, 4.0]), weight([math.inf, 2.0])
    for w in (good, bad):
        assert scaler.step(dt.optim.SGD([w], lr=1.0)) is None
    scaler.update()
    assert good.tolist() == [0.0, -1.0] and bad.tolist() == [1.0, 1.0]
    assert scaler.get_scale() == 1.0


def test_gradients_are_divided_once_and_parameters_without_one_are_left_out():
    scaler = scaling("cpu", 8.0)
    w, none = weight([16.0, 8.0]), weight()
    opt = dt.optim.SGD([w, none], lr=1.0)
    scaler.unscale_(opt)
    w.grad.mul_(0.5)  # as clipping does
    scaler.step(opt)
    assert w.tolist() == [0.0, 0.5] and none.tolist() == [1.0, 1.0]
    with pytest.raises(AutogradError, match=r"unscale_\(\) is being called after step\(\)"):
        scaler.unscale_(opt)
    scaler.break_off()
    scaler.unscale_(opt)  # the step began again


def test_outputs_are_scaled_in_their_containers():
    scaler = GradScaler("cpu", 2.0)
    a, (b, c) = scaler.scale([dt.ones(1), (dt.ones(2), dt.zeros(1))])
    assert (a.tolist(), b.tolist(), c.tolist()) == ([2.0], [2.0, 2.0], [0.0])
    assert isinstance(scaler.scale((dt.ones(1),)), tuple)
    with pytest.raises(ValueError, match="must be a Tensor or an iterable of Tensors"):
        scaler.scale(3.0)


def test_what_cannot_be_done_is_refused():
    scaler, opt = GradScaler("cpu"), dt.optim.SGD([weight([1.0, 1.0])], lr=1.0)
    for early in (scaler.step, scaler.unscale_, lambda _: scaler.update()):
        with pytest.raises(AssertionError, match="Attempted"):
            early(opt)
    scaler.scale(dt.ones(()))
    with pytest.raises(ValueError, match="unscale FP16 gradients"):
        scaler.unscale_(dt.optim.SGD([weight([1.0, 1.0], dt.float16)], lr=1.0))
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        scaler.step(dt.optim.SGD([weight()], lr=1.0), closure=lambda: 1)
    with pytest.raises(RuntimeError, match="source state dict is empty"):
        scaler.load_state_dict({})
    for wrong in ({"growth_factor": 1.0}, {"backoff_factor": 1.0}):
        with pytest.raises(ValueError, match="one above 1 and one below"):
            GradScaler("cpu", **wrong)
        GradScaler("cpu", enabled=False, **wrong)


def test_disabled_it_hands_everything_on():
    scaler = GradScaler("cpu", enabled=False)
    loss, w = dt.ones(1), weight([1.0, math.nan])
    assert scaler.scale(loss) is loss and scaler.get_scale() == 1.0 and not scaler.is_enabled()
    opt = dt.optim.SGD([w], lr=1.0)
    scaler.unscale_(opt)
    assert scaler.step(opt, closure=lambda: 7) == 7
    scaler.update()
    scaler.load_state_dict({})
    assert w.tolist()[0] == 0.0 and scaler.state_dict() == {}


def test_its_numbers_can_be_asked_for_set_and_taken_along():
    scaler = scaling("cpu", 4.0, growth_interval=3)
    scaler.set_growth_factor(5.0)
    scaler.set_backoff_factor(0.1)
    scaler.set_growth_interval(2)
    numbers = scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()
    assert numbers == (5.0, 0.1, 2)
    step(scaler, [1.0, 1.0])
    other = scaling("cpu")
    other.load_state_dict(scaler.state_dict())
    step(other, [1.0, 1.0])  # the second good one
    assert other.get_scale() == 20.0 and scaler.get_scale() == 4.0
    other.update(dt.tensor(3.0))
    assert other.get_scale() == 3.0


def test_sparse_gradients_of_huge_parameters_stay_sparse():
    w = dt.ones(1, requires_grad=True)
    scaler = scaling("cpu", 4.0)
    opt = dt.optim.SGD([w], lr=1.0)
    huge = dt.sparse_coo_tensor([[5, 10**12]], [4.0, 8.0], (2 * 10**12,))
    opt.param_groups[0]["params"] = [SimpleNamespace(grad=huge)]
    scaler.unscale_(opt)
    assert huge.coalesce().values().tolist() == [1.0, 2.0]


class Scaling(dt.optim.SGD):
    """An optimizer that handles scaled gradients itself."""

    _step_supports_amp_scaling = True

    def step(self, closure=None):
        (w,) = self.param_groups[0]["params"]
        self.seen = self.grad_scale and self.grad_scale.item(), self.found_inf.item()
        w.data.sub_(w.grad * (0.0 if self.seen[1] else 1.0))


class Asking(Scaling):
    def step(self, closure=None, *, grad_scaler=None):
        self.seen = grad_scaler.get_scale()


def test_optimizers_may_handle_scaled_gradients_themselves():
    w = weight([4.0, 8.0])
    scaler, opt = scaling("cpu", 4.0), Scaling([w], lr=1.0)
    scaler.step(opt)
    assert opt.seen == (4.0, 0.0) and w.tolist() == [-3.0, -7.0]
    assert not hasattr(opt, "grad_scale") and not hasattr(opt, "found_inf")
    scaler.update()
    w.grad = dt.tensor([math.inf, 1.0])
    scaler.step(opt)
    scaler.update()
    assert opt.seen == (4.0, 1.0) and scaler.get_scale() == 2.0
    w.grad = dt.tensor([2.0, 2.0])
    scaler.unscale_(opt)
    scaler.step(opt)
    assert opt.seen == (None, 0.0)
    asking = Asking([weight([1.0, 1.0])], lr=1.0)
    with pytest.warns(FutureWarning, match="passing itself"):
        scaler.step(asking)
    assert asking.seen == 2.0
