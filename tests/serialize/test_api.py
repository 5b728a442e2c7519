"""save and load: values, sharing, other tools' files, atomic writing."""

from __future__ import annotations

import io
import math
import os
import threading
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.core import Size, Tensor, wrap
from disttrain.core.random import manual_seed
from disttrain.core.types import dtypes
from disttrain.core.types.device import device
from disttrain.errors import ConfigError, SerializationError
from disttrain.optim import AdamW
from disttrain.serialize import (
    inspect,
    load,
    save,
)


def tensor(values, kind=dtypes.float32):
    return wrap(np.asarray(values, dtype=kind.np))


def again(obj, **options):
    f = io.BytesIO()
    save(obj, f)
    f.seek(0)
    return load(f, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.safetensors"


# --- values ---------------------------------------------------------------------------------------

VALUES = [
    None, True, False, 0, -7, 1 << 63, -(1 << 80), 0.1, -0.0, math.inf, -math.inf,
    "", "text \u00e9 \U0001f600 \ud800 \x00", b"", b"\x00\xff", bytearray(b"ab"), 1 + 2j,
    [], (), {}, [[]], ((),), {"a": {}}, {0: 1, (1, "b"): 2, None: 3, 2.5: 4, b"k": 5, True: 6},
    {1, 2}, frozenset({"a"}), Size((2, 3)), dtypes.bfloat16, device("cpu"), Path("/a/b"),
    np.float32(1.5), np.int64(-3), np.bool_(True), np.float64(math.inf), np.complex128(1j),
    ["list", 1], {"tensor": "x"}, {"__metadata__": 1}, OrderedDict([("z", 1), ("a", 2)]),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda v: f"{type(v).__name__} {v!r:.20}")
def test_values_come_back_as_they_were(value):
    got = again({"x": value, "list": [value]})
    for found in (got["x"], got["list"][0]):
        assert type(found) is type(value)
        assert repr(found) == repr(value) and found == value


def test_nan_and_numbers_of_any_length_come_back():
    assert math.isnan(again([math.nan])[0])
    assert again([1 << 20_000])[0].bit_length() == 20_001


@pytest.mark.parametrize("kind", dtypes.ALL, ids=repr)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 3), (2, 3, 4)])
@pytest.mark.parametrize("mapped", [True, False])
def test_every_type_and_shape(path, kind, shape, mapped):
    values = np.random.default_rng(0).integers(0, 2 if kind is dtypes.bool else 100, shape)
    save({"odd": tensor([1], dtypes.uint8), "t": tensor(values, kind)}, path)
    got = load(path, mmap=mapped, verify=True)["t"]
    assert isinstance(got, Tensor) and got.dtype is kind and got.shape == shape
    assert got.array.tobytes() == values.astype(kind.np).tobytes()  # (a nan too is what it was)
    assert got.array.flags.writeable and got.array.flags.aligned
    got.array[...] = 0


def test_arrays_stay_arrays_and_strides_do_not_matter():
    base = np.arange(24.0).reshape(4, 6)
    got = again({"big endian": base.astype(">f8"), "odd": base[::2, ::-3].copy("F"), "b": base.T})
    assert type(got["b"]) is np.ndarray
    np.testing.assert_array_equal(got["big endian"], base)
    np.testing.assert_array_equal(got["odd"], base[::2, ::-3])
    np.testing.assert_array_equal(got["b"], base.T)


def test_a_lone_tensor():
    assert again(tensor([1, 2])).array.tolist() == [1, 2]


def test_optimizer_like_state():
    state = {
        "state": {0: {"step": 3, "exp_avg": tensor([1.0])}, 1: {}},
        "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1]}],
    }
    got = again(state)
    assert got["state"][0]["exp_avg"].array.tolist() == [1.0]
    assert got["param_groups"] == state["param_groups"] and got["state"][1] == {}


def test_state_dict_keeps_the_versions_of_its_modules():
    state = OrderedDict(weight=tensor([1.0]))
    state._metadata = OrderedDict({"": {"version": 2}})
    assert again(state)._metadata == {"": {"version": 2}}


def test_a_module_and_its_optimizer(path):
    def made(seed):
        manual_seed(seed)
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
        return net, AdamW(net.parameters(), lr=0.1 * seed)

    (net, optimizer), (other, second) = made(1), made(2)
    net(tensor(np.eye(3))).sum().backward()
    optimizer.step()
    save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
    got = load(path)
    assert got["epoch"] == 3
    other.load_state_dict(got["model"])
    second.load_state_dict(got["optimizer"])
    for mine, theirs in zip(net.state_dict().values(), other.state_dict().values(), strict=True):
        np.testing.assert_array_equal(mine.array, theirs.array)
    assert second.param_groups[0]["lr"] == 0.1
    (p, q) = (next(iter(n.parameters())) for n in (net, other))
    np.testing.assert_array_equal(
        optimizer.state[p]["exp_avg"].array, second.state[q]["exp_avg"].array
    )


def test_requires_grad_comes_back():
    got = again([tensor([1.0]).requires_grad_(), tensor([1.0])])
    assert [t.requires_grad for t in got] == [True, False] and got[0].is_leaf


def test_long_descriptions_go_with_the_data(path):
    history = {"loss": [i / 7 for i in range(50_000)], "w": tensor([1.0])}
    save(history, path)
    assert load(path)["loss"] == history["loss"]


# --- sharing --------------------------------------------------------------------------------------


# --- other tools ----------------------------------------------------------------------------------


@pytest.mark.peer
def test_other_tools_read_a_flat_dict(path):
    import safetensors.numpy as tools

    state = {"a.weight": tensor([[1.0, 2.0]]), "b": tensor([3], dtypes.int64), "": tensor([4])}
    save(state, path)
    got = tools.load_file(path)
    assert sorted(got) == sorted(state)
    for name, t in state.items():
        np.testing.assert_array_equal(got[name], t.array)


@pytest.mark.peer
def test_nested_files_satisfy_other_tools_too(path):
    import safetensors as tools

    w = np.arange(12.0)
    save({"a": {"b": [tensor([1.0])], 3: wrap(w[2:]), "v": wrap(w)}, "e": tensor([])}, path)
    with tools.safe_open(path, "numpy") as f:
        assert {"a.b.0", "a.v", "e"} == set(f.keys())


@pytest.mark.peer
def test_files_of_other_tools_load_as_flat_dicts(path):
    import safetensors.numpy as tools

    state = {"half": np.ones(3, np.float16), "w": np.arange(6.0).reshape(2, 3), "e": np.zeros(0)}
    tools.save_file(state, path, metadata={"format": "np"})
    got = load(path)
    assert sorted(got) == sorted(state)
    for name, array in state.items():
        np.testing.assert_array_equal(got[name].array, array)
        assert got[name].array.flags.aligned


def test_a_name_that_stands_for_two_tensors():
    got = again({"a": {"b": tensor([1.0])}, "a.b": tensor([2.0])})
    assert (got["a"]["b"].array[0], got["a.b"].array[0]) == (1, 2)


# --- what cannot be saved -------------------------------------------------------------------------


class Net:
    """Holds what is no data."""

    def __init__(self):
        self.lock = threading.Lock()

    def state_dict(self):
        return {}


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (Net(), r"\['lock'\].*cannot pickle.*in a Net; save that one's \.state_dict"),
        (lambda: 0, "Code is not"),
        (np.array([threading.Lock()]), "cannot pickle"),
        (np.zeros(2, [("x", "i4"), ("y", "f8")]), "array"),
        (iter([]), "made of"), (threading.Lock(), "cannot pickle"),
    ],
)  # fmt: skip
def test_other_objects_are_refused_by_place(path, value, advice):
    with pytest.raises(SerializationError, match=r"obj\['model'\]\[1\].*" + advice):
        save({"model": [0, value]}, path)
    assert os.listdir(path.parent) == []


def test_arrays_of_texts_times_and_objects(path):
    words = np.array([["a", "bcd"], ["", "x"]])
    mixed = np.array(["q", None, 3], dtype=object)
    given = {
        "words": words, "again": [words, mixed, mixed], "turned": words[:, ::-1].T,
        "none": np.array([], dtype="U3"), "bytes": np.array([b"ab", b"c"]),
        "days": np.array(["2020-01-01"], "M8[D]"), "steps": np.array(3, "m8[s]"),
        "text": np.str_("zz"),
    }  # fmt: skip
    save(given, path)
    found = load(path)
    for name in ("words", "turned", "none", "bytes", "days", "steps"):
        assert found[name].dtype == given[name].dtype and np.array_equal(found[name], given[name])
    first, one, two = found["again"]
    assert first is found["words"] and one is two and one.tolist() == mixed.tolist()
    assert type(found["text"]) is np.str_ and found["text"] == "zz"
    found["words"][0, 0] = "w"


def test_wrong_keys_and_targets():
    with pytest.raises(SerializationError, match=r"it is a key of obj\['a'\]"):
        save({"a": {(lambda: 0): 1}}, io.BytesIO())
    with pytest.raises(ConfigError, match="path"):
        save({}, 3.5)
    with pytest.raises(ConfigError, match="path"):
        load(3.5)


def test_meta_tensors_are_shapes(path):
    save({"w": tensor([1.0, 2.0]), "n": np.arange(3)}, path)
    shapes = load(path, map_location="meta")
    assert shapes["w"].is_meta and shapes["w"].shape == (2,)
    assert shapes["n"].tolist() == [0, 1, 2]
    shapes["again"], shapes["leaf"] = shapes["w"], wrap(shapes["w"].array).requires_grad_()
    save(shapes, path)
    got = load(path)
    assert got["w"].is_meta and got["w"].shape == (2,) and got["again"] is got["w"]
    assert got["leaf"].requires_grad and not got["w"].requires_grad


@pytest.mark.parametrize(
    "where", [None, "cpu", device("cpu"), {"cuda:0": "cpu"}, lambda storage, place: storage]
)
def test_map_location(where):
    assert again([tensor([3.0])], map_location=where, weights_only=False)[0].array[0] == 3


def test_errors_of_a_function_that_places_are_its_own():
    with pytest.raises(ConfigError, match="map_location gave 'cpu' for what was saved on cpu"):
        again(tensor([3.0]), map_location=lambda storage, place: "cpu")
    with pytest.raises(KeyError, match="'cpu'"):
        again([tensor([3.0])], map_location=lambda storage, place: {}[place])


# --- files ----------------------------------------------------------------------------------------


def test_what_is_written_to_a_loaded_tensor_stays_here(path):
    save({"a": tensor([1.0] * 2000)}, path)
    load(path)["a"].array[:] = 7
    assert load(path)["a"].array[0] == 1


def test_a_mapped_file_may_be_replaced_and_removed(path):
    save({"a": tensor([1.0] * 5000)}, path)
    old = load(path)
    save({"a": tensor([2.0] * 5000)}, path)
    path.unlink()
    assert old["a"].array.sum() == 5000


def test_a_stream_goes_on_behind_the_file():
    f = io.BytesIO()
    f.write(b"head")
    save({"a": tensor([1.0])}, f)
    f.seek(4)
    assert load(f)["a"].array[0] == 1


class Trickle:
    """A file-like object that only reads, a few bytes at a time."""

    def __init__(self, data):
        self.f = io.BytesIO(data)

    def read(self, n):
        return self.f.read(min(n, 5))


def test_a_stream_that_only_reads():
    f = io.BytesIO()
    save({"a": tensor([1.0, 2.0]), "n": [1]}, f)
    assert load(Trickle(f.getvalue()))["n"] == [1]
    with pytest.raises(SerializationError, match="missing at the end"):
        load(Trickle(f.getvalue()[:-3]))


def test_inspect_reads_the_header_alone(path):
    save({"w": tensor([[1.0, 2.0]]), "n": 3}, path)
    header = inspect(path)
    assert header.entries["w"].shape == (1, 2) and header.entries["w"].code == "F32"
    assert header.start % 64 == 0 and header.num_bytes == 8


def test_values_one_behind_the_other_in_an_open_file(tmp_path):
    values = [dt.arange(5.0), {"a": [1, "x"]}, dt.ones(2, 3), 7]
    with (tmp_path / "f").open("w+b") as file:
        file.write(b"before")
        for value in values:
            dt.save(value, file)
            file.write(b"between")
        file.seek(6)
        for value in values:
            found = dt.load(file)
            assert found == value if not isinstance(value, dt.Tensor) else dt.equal(found, value)
            assert file.read(7) == b"between"
    with pytest.raises(SerializationError):
        dt.load(tmp_path / "f")
