"""Files in PyTorch's format: read again here, and made as PyTorch's own are."""

from __future__ import annotations

import io
import pickletools
import zipfile
from collections import Counter, OrderedDict, defaultdict

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, SerializationError
from disttrain.serialize.pytorch.writing import archive


def written(obj):
    out = io.BytesIO()
    dt.save(obj, out, format="torch")
    out.seek(0)
    return out


def again(obj):
    return dt.load(written(obj))


VALUES = [
    None, True, 0, 255, 256, 65536, -1, 2**31, -(2**70), 0.1, float("inf"), 1 - 2j, "",
    "ü\ud800", b"\xff\0", bytearray(b"ab"), (), (1,),
    (1, 2), (1, 2, 3), (1, 2, 3, "4"), [], [[1], {}], {"a": {2: None}},
    {(1, "b"): 2.5}, {1, "a"}, Counter("aab"), OrderedDict([("b", 1), ("a", 2)]), dt.float16,
    dt.Size([2, 3]), dt.Size([]), dt.device("cpu"), list(range(300)),
    {str(i): i for i in range(300)},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda v: repr(v)[:30])
def test_plain_values(value):
    for obj in (value, [value, value]):
        found = again(obj)
        assert found == obj and type(found) is type(obj)
    assert type(again([value])[0]) is type(value)


KINDS = """float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool
complex64 complex128 float8_e4m3fn float8_e5m2""".split()


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_of_numbers(kind):
    dtype = getattr(dt, kind)
    tensors = [dt.tensor([[0, 1, 1]]).to(dtype), dt.tensor(1).to(dtype), dt.empty(0, 2).to(dtype)]
    for tensor, found in zip(tensors, again(tensors), strict=True):
        assert found.dtype is dtype and found.shape == tensor.shape
        assert found.float().tolist() == tensor.float().tolist() or dtype.is_complex


def test_what_shares_memory_shares_it_again():
    base = dt.arange(12.0)
    turned = base.reshape(3, 4).t()
    found = again({"part": base[3:7], "turned": turned, "bits": base.view(dt.int32)})
    found["turned"].zero_()
    assert not found["part"].any() and not found["bits"].any()
    assert found["turned"].stride() == (1, 4)
    tied = dt.nn.Parameter(dt.ones(2))
    one, two = again([tied, tied])
    assert one is two and isinstance(one, dt.nn.Parameter)


def test_models_and_optimizers_go_on():
    dt.manual_seed(0)
    x = dt.rand(8, 3)

    def make():
        model = dt.nn.Sequential(dt.nn.Linear(3, 4), dt.nn.BatchNorm1d(4))
        return model, dt.optim.Adam(model.parameters(), lr=0.1)

    def train(model, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()

    model, optimizer = make()
    train(model, optimizer, 2)
    state = again({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert state["model"]._metadata["1"] == {"version": 2}
    other, its = make()
    other.load_state_dict(state["model"])
    its.load_state_dict(state["optimizer"])
    train(model, optimizer, 2)
    train(other, its, 2)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert dt.equal(a, b)


def test_the_archive_is_laid_out_as_pytorch_s():
    with zipfile.ZipFile(written({"a": dt.ones(3), "b": dt.ones(5).bfloat16()})) as file:
        names = file.namelist()
        assert names == [f"archive/{n}" for n in
                         ("data.pkl", "byteorder", "data/0", "data/1", "version")]  # fmt: skip
        assert file.read("archive/byteorder") == b"little" and file.testzip() is None
        assert {i.compress_type for i in file.infolist()} == {zipfile.ZIP_STORED}
        for info in file.infolist():
            assert (info.header_offset + 30 + len(info.filename) + len(info.extra)) % 64 == 0
        named = [a for o, a, _ in pickletools.genops(file.read("archive/data.pkl"))
                 if o.name == "GLOBAL"]  # fmt: skip
    assert named == ["torch._utils _rebuild_tensor_v2", "torch FloatStorage",
                     "collections OrderedDict", "torch BFloat16Storage"]  # fmt: skip


def test_data_is_not_copied():
    x = dt.ones(1000)
    parts = archive({"x": x}, dt.nn.Parameter)
    assert any(
        isinstance(p, memoryview) and np.shares_memory(np.frombuffer(p, np.uint8), x.numpy())
        for p in parts
    )


def test_a_file_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "m.pt"
    dt.save({"a": 1}, path, format="torch")
    with pytest.raises(SerializationError, match=r"obj\['b'\]\[0\] is a builtins.object"):
        dt.save({"a": 2, "b": [object()]}, path, format="torch")
    assert dt.load(path) == {"a": 1}


@pytest.mark.parametrize(
    "obj, match",
    [
        (dt.nn.Linear(1, 1), "state_dict"), ([np.ones(1)], r"obj\[0\] is a numpy.ndarray"),
        ({"x": defaultdict(list)}, "defaultdict"), (2**3000, "PyTorch takes 255"),
        (frozenset((1,)), "frozenset"),
    ],
)  # fmt: skip
def test_what_pytorch_does_not_load_as_data(obj, match):
    with pytest.raises(SerializationError, match=match):
        written(obj)


def test_depth_and_formats():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(SerializationError, match="too deeply"):
        written(deep)
    with pytest.raises(ConfigError, match="format='pickle'"):
        dt.save(1, io.BytesIO(), format="pickle")
