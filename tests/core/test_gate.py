"""The gate: one way for arrays, tensors, shapes without data and traced values; its messages."""

import subprocess
import sys

import numpy as np
import pytest

import disttrain as dt
from disttrain.backends.null import NullArray
from disttrain.core import Primitive
from disttrain.errors import CaptureError, DeviceError, DTypeError, ShapeError
from disttrain.func import grad, jvp, vmap
from disttrain.ops.declare import REGISTRY


def test_primitives_called_with_arrays_compute_arrays():
    add = REGISTRY["add"]
    assert isinstance(add(np.ones(2), np.ones(2)), np.ndarray) and repr(add) == "<primitive add>"
    assert add.__get__(None, None) is add


def test_every_mode_gives_the_same():
    x = dt.tensor([0.5, 2.0], requires_grad=True)

    def run():
        parts = (x * x).sum().unsqueeze(0).expand(2) + x.exp() * x[:1]
        values, places = parts.max(0)
        return [*parts.tolist(), values.item(), places.item(), *x.view(2, 1).flatten().tolist()]

    want = run()
    with dt.no_grad():
        assert run() == want
    with dt.autograd.detect_anomaly():
        assert run() == want


@pytest.mark.parametrize("anomaly", [False, True])
def test_errors_name_operation_and_operands(anomaly):
    with dt.autograd.set_detect_anomaly(anomaly):
        with pytest.raises(ShapeError, match=r"add.*float32\[2\].*float32\[3\]"):
            dt.ones(2) + dt.ones(3)
        with pytest.raises(ShapeError, match=r"\[2, 3\].*\[2, 3\]"):
            dt.ones(2, 3) @ dt.ones(2, 3)
        with pytest.raises(ShapeError, match="shape"):
            dt.ones(6).reshape(4, 2)
        with pytest.raises((IndexError, RuntimeError)):
            dt.ones(2, 3).permute(0, 5)


def test_shapes_without_data():
    a = dt.ones(2, 3, device="meta", requires_grad=True)
    out = (a @ dt.ones(3, 4, device="meta")).exp().sum(0)
    assert out.is_meta and out.shape == (4,) and out.requires_grad
    out.sum().backward()
    assert a.grad.is_meta and a.grad.shape == (2, 3)
    values, places = a.max(0)
    assert values.shape == places.shape == (3,) and places.dtype is dt.int64
    b = dt.ones(3, device="meta")
    b.mul_(2)
    assert b.is_meta
    with pytest.raises(DeviceError, match="no data"):
        dt.nonzero(b)
    ruleless = Primitive("ruleless", np.nonzero, ("a",))
    with pytest.raises(CaptureError, match="depends on data"):
        ruleless(NullArray((3,), np.dtype("f4")))


def test_traced_values_tell_what_they_are_and_not_what_they_hold():
    seen = []

    def look(x):
        seen.append((x.shape, x.ndim, x.dtype, x.device.type, x.is_meta, x.itemsize, x.nbytes))
        assert not x.detach().requires_grad
        with pytest.raises(CaptureError, match="used as numbers"):
            float(x.sum())
        with pytest.raises(CaptureError, match="pickled"):
            x.__reduce_ex__(4)
        return x * 2

    assert vmap(look)(dt.ones(3, 2)).tolist() == [[2.0, 2.0]] * 3
    assert seen == [((2,), 1, dt.float32, "cpu", False, 4, 8)]
    vmap(lambda row: vmap(lambda v: v.plain() is not None and v * 1)(row))(dt.ones(2, 2))


def test_traced_values_do_not_leave():
    kept = []
    vmap(lambda x: kept.append(x) or x)(dt.ones(3))
    with pytest.raises(CaptureError, match="after the transform returned"):
        kept[0] + 1
    with pytest.raises(CaptureError, match="after the transform returned"):
        kept[0].tolist()


def test_transforms_record_at_their_own_level():
    x = dt.tensor([1.0, 2.0], requires_grad=True)
    rows = vmap(grad(lambda v: (v**3).sum()))(x.reshape(2, 1))
    rows.sum().backward()
    assert rows.flatten().tolist() == [3.0, 12.0] and x.grad.tolist() == [6.0, 12.0]
    _, moved = jvp(lambda v: v.view(2, 1).clone().mul_(3).max(0)[0], (x.detach(),), (dt.ones(2),))
    assert moved.tolist() == [3.0]


def test_random_numbers_inside_of_vmap():
    dt.manual_seed(0)
    same = vmap(lambda x: x + dt.rand(2), randomness="same")(dt.zeros(3, 2))
    other = vmap(lambda x: x + dt.rand(2), randomness="different")(dt.zeros(3, 2))
    assert same[0].tolist() == same[1].tolist() and other[0].tolist() != other[1].tolist()
    _, moved = jvp(lambda x: x * dt.rand(2), (dt.ones(2),), (dt.ones(2),))
    assert 0 <= moved.min().item() <= 1


@pytest.mark.parametrize("op", [lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b])
@pytest.mark.parametrize(
    ("a", "b"),
    [(dt.ones(2), 3), (dt.ones(2), 3.5), (3, dt.ones(2)),
     (dt.ones(2), dt.ones(2, dtype=dt.float64)),
     (dt.ones(2, dtype=dt.int64), 2), (dt.ones(2, dtype=dt.int64), dt.ones(2)),
     (dt.ones(2, dtype=dt.bfloat16), dt.ones(2)), (dt.tensor(2.0), dt.ones(2)),
     (dt.ones(2, dtype=dt.complex64), 1j), (dt.ones(2, device="meta"), 1)],
)  # fmt: skip
def test_operands_of_every_kind(op, a, b):
    out = op(a, b)
    if not out.is_meta:
        values = [np.array(t.tolist()) if isinstance(t, dt.Tensor) else t for t in (a, b)]
        np.testing.assert_allclose(np.array(out.tolist()), op(*values))
    with dt.no_grad():
        assert op(a, b).dtype is out.dtype


def test_operands_that_make_no_sense():
    with pytest.raises((TypeError, DTypeError)):
        dt.ones(2) + "text"
    with pytest.raises(TypeError):
        dt.ones(2) + None


def traceback_of(program: str, monkeypatch, full: str) -> str:
    monkeypatch.setenv("DISTTRAIN_FULL_TRACEBACK", full)
    words = [sys.executable, "-c", f"import disttrain as dt\n{program}"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize(("program", "says"), [
    ("dt.ones(2, 3) @ dt.ones(4, 2)", "matmul(a: float32[2, 3], b: float32[4, 2]): inner sizes"),
    ("dt.ones(3) @ dt.ones(4)", "matmul(a: float32[3], b: float32[4]): inner sizes 3 and 4"),
    ("dt.nn.Linear(5, 2)(dt.ones(2, 4))", "needed a last dimension of in_features=5"),
    ("dt.nn.Conv2d(1, 1, 3)(dt.ones(1, 2, 9, 9))", "ShapeError"),
])  # fmt: skip
def test_a_traceback_begins_at_the_programs_line(program, says, monkeypatch) -> None:
    text = traceback_of(program, monkeypatch, "")
    assert text.count("Traceback") == 1 and says in text.splitlines()[-1]
    assert text.splitlines()[1].strip() == 'File "<string>", line 2, in <module>'


def test_all_of_a_traceback_is_shown_where_it_is_asked_for(monkeypatch) -> None:
    assert traceback_of("dt.ones(2, 3) @ dt.ones(4, 2)", monkeypatch, "1").count("Traceback") > 1
