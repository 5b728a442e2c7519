"""Values as bytes with their tensors beside them."""

import functools
import gc
import os.path
import pickle
import sys
import types
import weakref

import numpy as np
import pytest

import disttrain as dt
from disttrain.core import wrap
from disttrain.errors import PackError, UnknownName
from disttrain.rpc.calls.packing import Packer, arrays_of


def double(x):
    return x * 2


class Holder:
    def __init__(self, value):
        self.value = value

    def get(self):
        return self.value


class Stamped(dt.Tensor):
    pass


def copied(obj, packer=None):
    """``obj`` after a round trip, tensors as arrays of their own."""
    packer = packer or Packer()
    payload, tensors = packer.pack(obj)
    return packer.unpack(payload, [dt.from_numpy(a.copy()) for a in arrays_of(tensors)])


def test_tensors_travel_beside_the_payload():
    big = dt.ones(1000)
    payload, tensors = Packer().pack({"a": [big, (big, 3)], "b": dt.zeros(2)})
    assert len(payload) < 300
    assert tensors[0] is big and len(tensors) == 2


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
@pytest.mark.parametrize("leaf", [False, True])
def test_a_tensor_alone_needs_no_pickle(shape, leaf):
    x = dt.ones(shape, requires_grad=leaf)
    payload, tensors = Packer().pack(x)
    assert len(payload) == leaf and tensors == [x]
    back = Packer(allowed=()).unpack(payload, [dt.ones(shape)])
    assert type(back) is dt.Tensor and back.shape == shape and back.requires_grad is leaf
    placed = dt.ones(shape, requires_grad=True) * 2  # as a rider puts it there
    assert Packer().unpack(payload, [placed]).grad_fn is placed.grad_fn
    with pytest.raises(EOFError):  # what pickle says of no bytes
        Packer().unpack(b"", [])


def test_one_tensor_named_twice_is_one_tensor_there():
    x = dt.ones(3)
    a, b = copied((x, x))
    assert a is b


def test_receivers_put_other_tensors_in_place():
    payload, _ = Packer().pack([dt.ones(3), dt.zeros(2)])
    other = [dt.full((3,), 7.0), dt.full((2,), 8.0)]
    got = Packer().unpack(payload, other)
    assert got[0] is other[0] and got[1] is other[1]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3), (2, 0, 4)])
@pytest.mark.parametrize(
    "dtype", [dt.float32, dt.float16, dt.bfloat16, dt.int64, dt.bool, dt.complex64]
)
def test_every_shape_and_type(shape, dtype):
    x = dt.ones(shape).to(dtype)
    got = copied(x)
    assert got.dtype == dtype and got.shape == x.shape and (got == x).all()


def test_what_is_not_in_one_piece_arrives_in_one():
    x = dt.arange(12).reshape(3, 4)
    assert copied(x.t()).tolist() == x.t().tolist()
    assert copied(x[:, 1]).tolist() == [1, 5, 9]


def test_requires_grad_is_kept_and_the_graph_is_not():
    leaf = dt.ones(2, requires_grad=True)
    got, result = copied((leaf, leaf * 2))
    assert got.requires_grad and got.is_leaf and result.requires_grad and result.is_leaf
    assert not copied(dt.ones(2)).requires_grad


def test_parameters_and_subclasses_keep_their_class_and_attributes():
    p = dt.nn.Parameter(dt.ones(2), requires_grad=False)
    p.note = "here"
    got = copied(p)
    assert type(got) is dt.nn.Parameter and not got.requires_grad and got.note == "here"
    assert type(copied(dt.Tensor._make_subclass(Stamped, dt.ones(2)))) is Stamped


def test_modules_travel_whole():
    m = dt.nn.Linear(2, 3)
    got = copied(m)
    assert [n for n, _ in got.named_parameters()] == ["weight", "bias"]
    assert (got(dt.ones(2)) == m(dt.ones(2))).all()
    assert got.weight.requires_grad and type(got.weight) is dt.nn.Parameter


def test_functions_and_bound_things_travel_by_name():
    assert copied(double) is double and copied(dt.add) is dt.add and copied(Holder) is Holder
    assert copied(len) is len
    assert copied(functools.partial(double, dt.ones(2)))().tolist() == [2.0, 2.0]
    assert copied(Holder(5).get)() == 5
    assert copied(dt.Tensor.add_)(dt.ones(1), 2).tolist() == [3.0]


@pytest.mark.parametrize("obj", [lambda: 1, [lambda: 1]])
def test_lambdas_are_refused_with_a_hint(obj):
    with pytest.raises(PackError, match=r"top of a module.*cloudpickle=True"):
        Packer().pack(obj)


def test_pack_errors_are_what_pickle_raises_too():
    for kind in (pickle.PicklingError, AttributeError, TypeError, RuntimeError):
        with pytest.raises(kind):
            Packer().pack(lambda: 1)


def test_lambdas_travel_where_that_is_asked_for():
    pytest.importorskip("cloudpickle")
    n = 3
    assert copied(lambda x: x + n, Packer(by_value=True))(4) == 7


def test_too_deep_values_are_refused():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(PackError, match="nested deeper"):
        Packer().pack(nested)
    while nested:
        nested = nested.pop()


def test_reducers_say_how_their_types_travel():
    packer = Packer()
    packer.reducers[Holder] = lambda held: (double, (held.value,))
    assert copied([Holder(4)], packer) == [8]


def test_names_that_are_not_there_are_told():
    payload, _ = Packer().pack(double)
    broken = payload.replace(b"double", b"triple")
    with pytest.raises(UnknownName, match=r"triple.*RPC pickler does not serialize"):
        Packer().unpack(broken, [])
    with pytest.raises(UnknownName, match="No module named"):
        Packer().unpack(pickle.dumps(double).replace(b"test_packing", b"test_pakking"), [])


def test_only_allowed_modules_are_named():
    here = __name__
    payload, tensors = Packer().pack((double, (dt.ones(1), {"a": {1, 2}}, np.float32(3)), {}))
    assert Packer(allowed=[here]).unpack(payload, tensors)[0] is double
    with pytest.raises(UnknownName, match=f"{here}.double may not be used.*math"):
        Packer(allowed=["math"]).unpack(payload, tensors)
    evil = pickle.dumps(functools.partial(eval, "1"))
    for allowed in ([here], ["functools"]):
        with pytest.raises(UnknownName, match="may not be used"):
            Packer(allowed=allowed).unpack(evil, [])


@pytest.mark.parametrize(
    "value",
    [dt.float32, dt.Size([2]), dt.device("cpu"), dt.nn.Parameter(dt.ones(2)), slice(1, 2), ...,
     dt.ones(2, device="meta"), dt.ones(2).to_sparse(), np.ones(3), np.float64(1), None, {1: {2}}],
)  # fmt: skip
def test_plain_data_may_always_be_sent(value):
    assert type(copied([value], Packer(allowed=[]))[0]) is type(value)


@pytest.mark.parametrize(
    "name",
    ["disttrain.rpc.calls.failures\nos.system", "test_packing\nsys.modules",
     "test_packing\nos.environ", "test_packing\npickle.loads", "test_packing\nos",
     "test_packing\nHolder.__class__", "disttrain.rpc.calls.failures\n_find",
     "disttrain.rpc.calls.endpoints\nopen_endpoint"],
)  # fmt: skip
def test_modules_that_may_be_named_open_no_way_to_others(name):
    attack = b"\x80\x04\x8c" + b"".join(
        bytes([len(part)]) + part.encode() + (b"\x8c" if not i else b"\x93.")
        for i, part in enumerate(name.replace("test_packing", __name__).split("\n"))
    )
    assert Packer().unpack(attack, []) is not None
    with pytest.raises(UnknownName):
        Packer(allowed=[__name__]).unpack(attack, [])


def test_a_parent_package_allows_what_is_in_it():
    payload, _ = Packer().pack(functools.partial)
    assert Packer(allowed=["functools"]).unpack(payload, []) is functools.partial
    payload, _ = Packer().pack(os.path.join)
    with pytest.raises(UnknownName):
        Packer(allowed=["os"]).unpack(payload, [])  # its module is posixpath


def test_the_program_has_one_name_in_all_its_processes(monkeypatch):
    main = types.ModuleType("__main__")
    main.double = double
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.delitem(sys.modules, "__mp_main__", raising=False)  # multiprocessing sets it
    assert Packer().unpack(b"\x80\x04c__mp_main__\ndouble\n.", []) is double


LAID_OUT = [  # views of 6 x 5 elements, and whether the other side lays them out alike
    (lambda t: t.T, True), (lambda t: t.narrow(1, 2, 2), True), (lambda t: t[::2], True),
    (lambda t: t.view(2, 3, 5).permute(2, 0, 1), True), (lambda t: t[0, ::3], True),
    (lambda t: t[:, 0], False), (lambda t: t.expand(2, 6, 5), False),
    (lambda t: t[:1, :1].expand(3, 3), False), (lambda t: t[3:3].T, False),
]  # fmt: skip


@pytest.mark.parametrize(("view", "alike"), LAID_OUT)
def test_tensors_lie_in_memory_as_they_did(view, alike):
    t = view(dt.arange(30).view(6, 5))
    payload, tensors = Packer().pack([t])[:2]
    (back,) = Packer().unpack(payload, [wrap(a.copy()) for a in arrays_of(tensors)])
    assert dt.equal(back, t) and back.array.flags.writeable
    assert back.stride() == t.stride() if alike else back.is_contiguous()


def test_sparse_leaves_keep_their_places():
    x = dt.sparse_coo_tensor([[2, 0, 2]], [1.0, 2.0, 3.0], (4,), requires_grad=True)
    payload, tensors = Packer().pack({"x": x, "same": x})[:2]
    back = Packer().unpack(payload, [wrap(a.copy()) for a in arrays_of(tensors)])
    assert back["x"] is back["same"] and len(tensors) == 2
    assert back["x"].is_sparse and back["x"].requires_grad and back["x"].is_leaf
    assert back["x"]._indices().tolist() == [[2, 0, 2]]
    assert back["x"].to_dense().tolist() == [2, 0, 4, 0]


def test_what_was_unpacked_goes_as_soon_as_nobody_has_it():
    """Received tensors lie in memory that their sender waits for."""
    packer = Packer()
    payload, tensors = packer.pack([dt.ones(3), {"b": dt.zeros(2, requires_grad=True)}])
    arrays = [a.copy() for a in arrays_of(tensors)]
    alive = [weakref.ref(a) for a in arrays]
    gc.disable()
    try:
        value = packer.unpack(payload, [dt.from_numpy(a) for a in arrays])
        assert value[0].sum() == 3
        del arrays, value
        assert [ref() for ref in alive] == [None, None]
    finally:
        gc.enable()
