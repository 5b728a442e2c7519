"""no_grad and its kin, and anomaly detection."""

import threading

import pytest

import disttrain as dt
from disttrain.autograd import Function
from disttrain.context import thread
from disttrain.core.grad_mode import is_anomaly_check_nan_enabled, is_anomaly_enabled
from disttrain.errors import AnomalyError, AutogradError


def test_inference_mode_is_told_and_records_nothing():
    x = dt.ones(2, requires_grad=True)
    with dt.inference_mode():
        assert dt.is_inference_mode_enabled()
        assert not (x * 2).requires_grad
        with dt.inference_mode(False):
            assert not dt.is_inference_mode_enabled() and (x * 2).requires_grad
        assert dt.is_inference_mode_enabled()
    assert not dt.is_inference_mode_enabled()
    assert (x * 2).requires_grad


def test_inference_mode_as_decorator():
    @dt.inference_mode()
    def inside():
        return dt.is_inference_mode_enabled()

    assert inside()
    assert not dt.is_inference_mode_enabled()


@pytest.mark.parametrize("mode", [dt.no_grad, dt.enable_grad, dt.inference_mode])
def test_modes_end_and_nest(mode):
    records = mode is dt.enable_grad
    with dt.set_grad_enabled(not records):
        with mode():
            assert dt.is_grad_enabled() is records
            with dt.enable_grad(), dt.no_grad():
                assert not dt.is_grad_enabled()
            assert dt.is_grad_enabled() is records
        assert dt.is_grad_enabled() is not records
        with pytest.raises(KeyError), mode():
            raise KeyError("inside")
        assert dt.is_grad_enabled() is not records


@pytest.mark.parametrize("make", [lambda: dt.no_grad, lambda: dt.no_grad(),
                                  lambda: dt.inference_mode, lambda: dt.inference_mode(),
                                  lambda: dt.set_grad_enabled(False)])  # fmt: skip
def test_decorators(make):
    @make()
    def inside(n):
        """Told."""
        return dt.is_grad_enabled() if n == 0 else inside(n - 1)

    assert inside(0) is False and inside(2) is False and inside.__doc__ == "Told."
    assert dt.is_grad_enabled()


def test_set_grad_enabled_works_at_once_and_as_a_block():
    dt.set_grad_enabled(False)
    try:
        assert not dt.is_grad_enabled()
        with dt.set_grad_enabled(True):
            assert dt.is_grad_enabled()
        assert not dt.is_grad_enabled()
    finally:
        dt.set_grad_enabled(True)


def test_generators_step_in_their_mode():
    @dt.no_grad()
    def steps():
        got = []
        try:
            for i in range(3):
                assert not dt.is_grad_enabled()
                try:
                    got.append((yield i))
                except ValueError:
                    got.append("thrown")
                assert not dt.is_grad_enabled()
        finally:
            got.append(dt.is_grad_enabled())
            closed.append(got)
        return got

    closed = []
    it = steps()
    assert next(it) == 0 and dt.is_grad_enabled()
    assert it.send("a") == 1 and it.throw(ValueError) == 2
    with pytest.raises(StopIteration) as stop:
        it.send("b")
    assert stop.value.value == ["a", "thrown", "b", False]
    it = steps()
    next(it)
    it.close()
    assert closed[1] == [False] and dt.is_grad_enabled()


def test_decorated_classes_warn():
    with pytest.warns(FutureWarning, match="Decorating classes is deprecated"):

        @dt.no_grad()
        class Made:
            def __init__(self):
                self.made = dt.is_grad_enabled()

            def later(self):
                return dt.is_grad_enabled()

    made = Made()
    assert made.made is False and made.later() is True


def test_modes_belong_to_a_thread():
    seen = []
    with dt.no_grad():
        other = threading.Thread(target=lambda: seen.append(dt.is_grad_enabled()))
        other.start()
        other.join()
    assert seen == [True]


class Nan(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * float("nan")


def test_anomalies_are_found_and_named():
    x = dt.ones(2, requires_grad=True)
    with dt.autograd.detect_anomaly():
        out = Nan.apply(x).sum()
        with pytest.raises(AnomalyError, match=r"'NanBackward' returned nan.*test_grad_mode.py"):
            out.backward()
        assert is_anomaly_enabled() and is_anomaly_check_nan_enabled()
        with pytest.raises(AnomalyError, match=r"'SqrtBackward0'.*test_grad_mode.py"):
            ((x * 0).sqrt() * 0).sum().backward()
    assert not is_anomaly_enabled()
    Nan.apply(x).sum().backward()


def test_anomaly_detection_without_the_check():
    x = dt.ones(2, requires_grad=True)
    with dt.autograd.set_detect_anomaly(True, check_nan=False):
        Nan.apply(x).sum().backward()

    @dt.autograd.detect_anomaly(check_nan=False)
    def step():
        assert is_anomaly_enabled() and not is_anomaly_check_nan_enabled()

    @dt.autograd.set_detect_anomaly(False)
    def other():
        assert not is_anomaly_enabled()

    step()
    other()


def test_errors_of_backward_name_the_forward_line_under_anomaly_detection():
    x = dt.ones(2, requires_grad=True)
    with dt.autograd.detect_anomaly():
        y = x.exp()
        y.detach().zero_()
        with pytest.raises(AutogradError, match=r"The operation ran at .*test_grad_mode.py"):
            y.sum().backward()


def test_multithreading_is_a_setting():
    with dt.autograd.set_multithreading_enabled(False):
        assert not thread.multithreading

        @dt.autograd.set_multithreading_enabled(True)
        def inside():
            return thread.multithreading

        assert inside()
    assert thread.multithreading
