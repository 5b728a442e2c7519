"""Both formats of PyTorch's files, and thousands of damaged and hostile ones."""

from __future__ import annotations

import io
import pickle
import random
import struct
import zipfile

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import DeviceError, SerializationError
from disttrain.serialize import get_unsafe_globals_in_checkpoint, safe_globals
from disttrain.serialize.pytorch.reading import OLD_MAGIC, is_archive, is_old

HOOKS = b"ccollections\nOrderedDict\n)R"


def tensor(key=b"0", count=4, size=b"K\x04\x85", stride=b"K\x01\x85", offset=b"K\x00", more=b""):
    """The text of a pickle for a tensor of float32. ``more``: what its reference has behind."""
    reference = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX" + struct.pack("<I", len(key)) + key
    reference += b"X\x03\0\0\0cpuJ" + struct.pack("<i", count) + more + b"tQ"
    rest = offset + size + stride + b"\x89" + HOOKS
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + reference + rest + b"tR"


def archived(text, records=(), folder="x/"):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr(f"{folder}data.pkl", b"\x80\x02" + text + b".")
        for name, data in records:
            file.writestr(folder + name, data)
    return out.getvalue()


DATA = np.arange(4, dtype=np.float32)
FILE = archived(tensor(), [("data/0", DATA.tobytes())])


def old(text=None, keys=("0",), data=None, count=4, version=1001, little=True):
    order, data = "<" if little else ">", DATA.tobytes() if data is None else data
    parts = [OLD_MAGIC, pickle.dumps(version, 2), pickle.dumps({"little_endian": little}, 2)]
    parts += [b"\x80\x02" + (text or tensor(more=b"N")) + b".", pickle.dumps(list(keys), 2)]
    return b"".join(parts) + struct.pack(f"{order}q", count) + data


def loaded(data, **how):
    return dt.load(io.BytesIO(data), **how)


def test_an_archive_by_path_by_map_and_by_stream(tmp_path):
    path = tmp_path / "m.pt"
    path.write_bytes(FILE)
    for how in ({}, {"mmap": True}, {"mmap": False}, {"verify": False}):
        assert dt.load(path, **how).tolist() == [0, 1, 2, 3]
    found = dt.load(path)
    found.add_(1)
    assert path.read_bytes() == FILE
    assert loaded(FILE, map_location="meta").device.type == "meta"

    class Pipe:  # of which nothing is known but what comes next
        def __init__(self):
            self.data = io.BytesIO(FILE)

        def read(self, n=-1):
            return self.data.read(min(n, 10) if n > 0 else n)

    assert dt.load(Pipe()).tolist() == [0, 1, 2, 3]


def test_the_old_format():
    assert loaded(old()).tolist() == [0, 1, 2, 3]
    swapped = old(data=DATA.astype(">f4").tobytes(), little=False)
    assert loaded(swapped).tolist() == [0, 1, 2, 3]
    two = b"(" + tensor(more=b"N") + tensor(b"1", more=b"N") + b"t"
    both = old(two, keys=("1", "0")) + struct.pack("<q", 4) + (DATA + 4).tobytes()
    assert [t.tolist() for t in loaded(both)] == [[4, 5, 6, 7], [0, 1, 2, 3]]


def test_the_order_of_bytes_of_another_machine():
    data = [("data/0", DATA.astype(">f4").tobytes()), ("byteorder", b"big")]
    assert loaded(archived(tensor(), data)).tolist() == [0, 1, 2, 3]


def test_what_a_file_begins_with():
    assert is_archive(FILE[:16]) and not is_archive(b"\x80\x02")
    assert is_old(old()[:16]) and not is_old(b"\x80\x02\x8a") and not is_old(FILE[:16])
    with pytest.raises(SerializationError, match=r"numpy\.savez"):
        loaded(archived(b"N", folder="").replace(b"data.pkl", b"data.npy"))


def test_places_by_a_function_and_by_names():
    seen = []

    def place(storage, location):
        seen.append((storage.tolist(), location))

    assert loaded(FILE, map_location=place).tolist() == [0, 1, 2, 3]
    assert seen == [([0, 1, 2, 3], "cpu")]
    with pytest.raises(ZeroDivisionError):
        loaded(FILE, map_location=lambda storage, location: 1 // 0)
    there = FILE.replace(b"cpu", b"xpu")
    with pytest.raises(DeviceError, match="map_location='cpu'"):
        loaded(there, verify=False)
    assert loaded(there, verify=False, map_location={"xpu": "cpu"}).tolist() == [0, 1, 2, 3]


class Mine:
    def __init__(self, a=0):
        self.a = a


def test_classes_that_are_allowed():
    text = pickle.dumps(Mine(3), 2)[2:-1]
    name = f"{Mine.__module__}.Mine"
    with pytest.raises(pickle.UnpicklingError, match=f"needs {name}.*state_dict"):
        loaded(archived(text))
    with pytest.raises(SerializationError, match="needs"):  # trust is no reason to import
        loaded(archived(text), weights_only=False)
    assert loaded(archived(text), classes=[Mine]).a == 3
    with safe_globals([Mine]):
        assert loaded(archived(text)).a == 3


def test_names_that_a_file_needs(tmp_path):
    path = tmp_path / "m.pt"
    path.write_bytes(archived(b"(" + tensor() + pickle.dumps(Mine(), 2)[2:-1] + b"t"))
    assert get_unsafe_globals_in_checkpoint(path) == [f"{Mine.__module__}.Mine"]


def test_a_storage_by_itself():
    reference = tensor().partition(b"v2\n(")[2].partition(b"Q")[0] + b"Q"
    found = loaded(archived(b"}X\x01\0\0\0s" + reference + b"s", [("data/0", DATA.tobytes())]))
    assert found["s"].nbytes() == 16
    with pytest.raises(SerializationError, match="in a tuple"):
        loaded(archived(reference + b"\x85", [("data/0", DATA.tobytes())]))


LIES = {
    "storage that is missing": archived(tensor()),
    "storage that is short": archived(tensor(), [("data/0", b"123")]),
    "claim of a billion": archived(tensor(count=10**9), [("data/0", DATA.tobytes())]),
    "claim below nothing": archived(tensor(count=-1), [("data/0", DATA.tobytes())]),
    "size beyond": archived(tensor(size=b"K\x05\x85"), [("data/0", DATA.tobytes())]),
    "offset beyond": archived(tensor(offset=b"K\x01"), [("data/0", DATA.tobytes())]),
    "stride beyond": archived(tensor(stride=b"K\x02\x85"), [("data/0", DATA.tobytes())]),
    "huge stride": archived(tensor(stride=b"\x8a\x09" + bytes(8) + b"\x01\x85"),
                            [("data/0", DATA.tobytes())]),
    "a path for a key": archived(tensor(b"../../data.pkl"), [("data/0", DATA.tobytes())]),
    "a call of a name": archived(b"cos\nsystem\nX\x05\0\0\0false\x85R"),
    "a name for a value": archived(b"cos\nsystem\n"),
    "eval": archived(b"cbuiltins\neval\nX\x01\0\0\x001\x85R"),
    "a getattr of what is allowed": archived(b"ctorch.Tensor\n__class__\n"),
    "a reference to a module": archived(b"(X\x06\0\0\0moduleNNNNtQ"),
    "an encoding": archived(b"c_codecs\nencode\nX\x01\0\0\0aX\x05\0\0\0utf-8\x86R"),
    "state for a list": archived(b"]}b"),
    "no pickle": archived(b""),
    "old: cut short": old()[:-1],
    "old: no storages": old(keys=()),
    "old: unknown storage": old(keys=("7",)),
    "old: claim": old(count=1 << 60),
    "old: below nothing": old(count=-1),
    "old: version": old(version=7),
    "old: part of a storage": old(tensor(more=b"N\x85")),
    "old: twice the same": old(keys=("0", "0")),
    "old: begins so": OLD_MAGIC,
}  # fmt: skip


@pytest.mark.parametrize("data", LIES.values(), ids=LIES)
def test_lies(data, tmp_path):
    path = tmp_path / "bad.pt"
    path.write_bytes(data)
    with pytest.raises(SerializationError, match=r"bad\.pt"):
        dt.load(path)


def damaged(data, rng):
    """A copy with a few bytes changed, dropped or repeated."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, kind = rng.randrange(len(out)), rng.random()
        if kind < 0.7:
            out[at] = rng.choice((0, 255, out[at] ^ (1 << rng.randrange(8)), rng.randrange(256)))
        elif kind < 0.85:
            del out[at : at + rng.randint(1, 40)]
        else:
            out[at:at] = out[at : at + rng.randint(1, 40)]
    return bytes(out[: rng.randrange(len(out))] if rng.random() < 0.1 else out)


def _model():
    dt.manual_seed(0)
    model = dt.nn.Sequential(dt.nn.Linear(2, 3), dt.nn.BatchNorm1d(3))
    out = io.BytesIO()
    dt.save({"model": model.state_dict(), "step": 7, "names": ["a", ("b", 1.5)]}, out,
            format="torch")  # fmt: skip
    return out.getvalue()


@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_damaged_files_are_refused_or_read_and_do_nothing_else(first):
    files = [_model(), FILE, old()]
    for seed in range(first, first + 500):
        rng = random.Random(seed)
        data = damaged(files[seed % 3], rng)
        try:
            loaded(data, verify=seed % 2 == 0)
        except SerializationError:
            continue
        except DeviceError as error:
            assert "map_location" in str(error), (seed, error)


def _deep(levels=60):
    """The text of a tuple that repeats itself: its own text would have 2**levels parts."""
    return b"N" + b"q\x01h\x01\x86" * levels


@pytest.mark.parametrize(
    "text",
    [
        _deep() + b"Q", b"ctorch\nSize\n" + _deep() + b"\x85R",
        b"ctorch\ndevice\n" + _deep() + b"\x85R", tensor(offset=_deep()), tensor(size=_deep()),
        b"c_codecs\nencode\nX\1\0\0\0a" + _deep() + b"\x86R", b"}" + _deep() + b"Ns",
    ],
)  # fmt: skip
def test_messages_about_values_that_repeat_themselves_are_short(text):
    with pytest.raises(SerializationError) as caught:
        loaded(archived(text, [("data/0", DATA.tobytes())]))
    assert len(str(caught.value)) < 1000


def test_what_is_no_device_is_refused_as_the_file_is():
    with pytest.raises(SerializationError, match="device"):
        loaded(archived(b"ctorch\ndevice\nX\4\0\0\0junk\x85R"))


def test_where_stands_once_in_messages():
    with pytest.raises(SerializationError) as caught:
        loaded(archived(tensor(key=b"7"), [("data/0", DATA.tobytes())]))
    assert str(caught.value).count("load:") == 1


def test_a_storage_is_no_key():
    with pytest.raises(SerializationError, match="a key of type"):
        reference = tensor().partition(b"(")[2].partition(b"Q")[0] + b"Q"
        loaded(archived(b"}" + reference + b"Ns", [("data/0", DATA.tobytes())]))
