"""Folders of PyTorch's checkpoints: what is read, and that nothing else is done."""

from __future__ import annotations

import enum
import io
import pickle
import random
import sys
import types

import numpy as np
import pytest

import disttrain as dt
from disttrain.core import Size
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed.checkpoint import tools
from disttrain.errors import DisttrainError, SerializationError

HERE, FILES = "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"
CLASSES = """Metadata TensorStorageMetadata BytesStorageMetadata ChunkStorageMetadata MetadataIndex
StorageMeta""".split()


class _Plain:
    def __init__(self, **parts):
        self.__dict__.update(parts)


@pytest.fixture
def theirs(monkeypatch):
    """PyTorch's classes by name, as its pickles spell them."""
    found = types.SimpleNamespace()
    torch = types.ModuleType("torch")
    torch.Size = type("Size", (tuple,), {"__module__": "torch",
        "__reduce__": lambda self: (torch.Size, (tuple(self),))})  # fmt: skip
    for kind in ("float32", "int64", "bool"):
        value = type(
            kind, (), {"__reduce__": lambda self, kind=kind: kind, "__module__": "torch"}
        )()
        value.__module__ = "torch"
        setattr(torch, kind, value)
        setattr(found, kind, value)
    monkeypatch.setitem(sys.modules, "torch", torch)
    found.Size, found.torch = torch.Size, torch
    for module, names in ((HERE, CLASSES), (FILES, ["_StorageInfo"])):
        made = types.ModuleType(module)
        for name in names:
            cls = type(name, (_Plain,), {"__module__": module})
            setattr(made, name, cls)
            setattr(found, name, cls)
        monkeypatch.setitem(sys.modules, module, made)
    made = sys.modules[HERE]
    encoding = enum.Enum("_MEM_FORMAT_ENCODING", {"A": 0}, module=HERE)
    properties = type("TensorProperties", (_Plain,), {"__module__": HERE,
        "__getstate__": lambda self: (self.dtype, None, False, encoding.A, False)})  # fmt: skip
    made._MEM_FORMAT_ENCODING, made.TensorProperties = encoding, properties
    found.TensorProperties = properties
    return found


def as_archive(value):
    out = io.BytesIO()
    dt.save(value, out, format="torch")
    return out.getvalue()


class Folder:
    """A checkpoint of two ranks: ``w`` in two pieces, ``s`` a number, ``about`` a dict."""

    def __init__(self, theirs, path):
        self.theirs, self.path = theirs, path
        self.data = {0: b"", 1: b""}
        self.w = np.arange(12, dtype=np.float32).reshape(4, 3)
        places = {}
        for rank, (at, n) in enumerate(((0, 3), (3, 1))):
            part = dt.tensor(self.w[at : at + n])
            places[self.index("w", (at, 0))] = self.put(rank, as_archive(part))
        places[self.index("s", ())] = self.put(1, as_archive(dt.tensor(5)))
        places[self.index("about.lr")] = self.put(0, as_archive({"lr": 0.5, "names": ["a"]}))
        self.metadata = theirs.Metadata(
            state_dict_metadata={
                "w": self.tensor("float32", (4, 3), ((0, 0), (3, 3)), ((3, 0), (1, 3))),
                "s": self.tensor("int64", (), ((), ())),
                "about.lr": theirs.BytesStorageMetadata(),
            },
            planner_data={"w": ("w",), "s": ("s",), "about.lr": ("about", 0, "lr")},
            storage_data=places, version="1.0.0",
            storage_meta=theirs.StorageMeta(checkpoint_id=path, modules=[]),
        )  # fmt: skip

    def put(self, rank, data):
        begin = len(self.data[rank])
        self.data[rank] += data
        return self.theirs._StorageInfo(
            relative_path=f"__{rank}_0.distcp", offset=begin, length=len(data)
        )

    def index(self, name, offset=None):
        at = None if offset is None else self.theirs.Size(offset)
        return self.theirs.MetadataIndex(fqn=name, offset=at, index=0)

    def tensor(self, kind, size, *chunks):
        of = self.theirs
        return of.TensorStorageMetadata(
            properties=of.TensorProperties(dtype=getattr(of, kind)), size=of.Size(size),
            chunks=[of.ChunkStorageMetadata(offsets=of.Size(a), sizes=of.Size(n))
                    for a, n in chunks],
        )  # fmt: skip

    def place(self, name):
        return next(p for i, p in self.metadata.storage_data.items() if i.fqn == name)

    def write(self, metadata=None):
        self.path.mkdir(exist_ok=True)
        for rank, data in self.data.items():
            (self.path / f"__{rank}_0.distcp").write_bytes(data)
        raw = pickle.dumps(self.metadata, 4) if metadata is None else metadata
        (self.path / ".metadata").write_bytes(raw)
        return self.path


@pytest.fixture
def folder(theirs, tmp_path):
    return Folder(theirs, tmp_path / "c")


def refused(path, match):
    with pytest.raises(DisttrainError, match=match):
        tools.values(str(path))


def test_all_of_it_and_parts(folder):
    path = folder.write()
    found = tools.values(str(path))
    assert found["w"].tolist() == folder.w.tolist()
    assert found["s"].item() == 5
    assert found["about"] == [{"lr": {"lr": 0.5, "names": ["a"]}}]
    state = {"w": dt.zeros(4, 3, dtype=dt.float64), "s": dt.tensor(0)}
    dcp.load(state, checkpoint_id=path)
    assert state["w"].tolist() == folder.w.tolist()
    about = dcp.FileSystemReader(path).read_metadata()
    assert about.state_dict_metadata["w"].size == Size((4, 3))
    assert tools.verify(str(path))[1] == []
    assert tools.summary(str(path)).world_size == 2
    assert tools.find(str(path.parent)) == [str(path)]


def test_what_is_written_anew_and_removed(folder, tmp_path):
    path = folder.write()
    tools.reshard(str(path), str(tmp_path / "d"), 2)
    told = tools.diff(str(path), str(tmp_path / "d"), ignore=("about",))
    assert not told and told.equal == 2
    assert tools.values(str(tmp_path / "d"))["w"].tolist() == folder.w.tolist()
    tools.remove(str(path))
    assert not path.exists()


def test_values_that_do_not_fit_their_checksum_or_are_cut_short(folder):
    folder.write()
    file = folder.path / "__0_0.distcp"
    raw = bytearray(file.read_bytes())
    at = raw.index(folder.w[:3].tobytes())
    raw[at + 5] ^= 1
    file.write_bytes(raw)
    refused(folder.path, "does not fit its checksum")
    assert len(tools.verify(str(folder.path))[1]) == 1
    file.write_bytes(raw[:-10])
    refused(folder.path, "cut short|bytes, and the manifest says")
    file.unlink()
    refused(folder.path, "is missing")


def test_places_outside_of_files(folder):
    for name in ("../x", "/etc/passwd", "a/b", "", ".metadata/x"):
        folder.place("s").relative_path = name
        refused(folder.write(), "no name of a file")
    folder.place("s").relative_path = "__1_0.distcp"
    for offset in (-1, 1 << 70, 2.0, None):
        folder.place("s").offset = offset
        refused(folder.write(), "a count is needed")


def test_pieces_that_make_up_no_tensor(folder, theirs):
    whole = folder.metadata.state_dict_metadata["w"]
    chunks = list(whole.chunks)
    for some, text in ((chunks[:1], "9 of 12"), ([chunks[0], *chunks], "overlap")):
        whole.chunks = some
        refused(folder.write(), text)
    whole.chunks = chunks
    del folder.metadata.storage_data[next(iter(folder.metadata.storage_data))]
    refused(folder.write(), "is in no file")


def test_values_of_another_shape_or_type(folder, theirs):
    about = folder.metadata.state_dict_metadata
    for kind, size in (("float32", ()), ("int64", (1,))):
        folder.metadata.state_dict_metadata["s"] = folder.tensor(kind, size, ((0,) * len(size),
                                                                              size))  # fmt: skip
        folder.metadata.storage_data[folder.index("s", (0,) * len(size))] = folder.place("s")
        if not size:
            folder.metadata.storage_data = {
                i: p for i, p in folder.metadata.storage_data.items()
                if i.fqn != "s" or i is next(k for k in folder.metadata.storage_data
                                             if k.fqn == "s")
            }  # fmt: skip
        refused(folder.write(), "lies there|is named twice")
    assert about is folder.metadata.state_dict_metadata


class _Call:
    """Pickles as the call of a function."""

    def __init__(self, function, *args):
        self.parts = function, args

    def __reduce__(self):
        return self.parts


def test_nothing_is_imported_or_called(folder, tmp_path):
    mark = tmp_path / "mark"
    for found in (_Call(open, str(mark), "w"), _Call(__import__, "antigravity")):
        folder.metadata.planner_data = found
        refused(folder.write(), "Nothing in it is imported or called")
        folder.metadata.planner_data = {"w": (found,)}
        refused(folder.write(), "Nothing in it is imported or called")
        assert not mark.exists()
    folder.metadata.planner_data = None
    folder.put(0, b"")
    folder.data[0] = folder.data[0].replace(b"collections", b"antigravity")
    folder.write()
    with pytest.raises(SerializationError):
        tools.values(str(folder.path))


def test_transformed_values_and_other_roots(folder, theirs):
    folder.place("s").transform_descriptors = ["zstd"]
    refused(folder.write(), "was transformed when it was written")
    for root in ({}, [1], theirs.StorageMeta(), theirs.Metadata()):
        refused(folder.write(pickle.dumps(root, 4)), "is needed|incomplete")
    refused(folder.write(b""), "makes no sense|has no end")
    refused(folder.write(b"\x80\x04."), "makes no sense")


def test_damaged_metadata_raises_errors_of_its_own(folder):
    raw = pickle.dumps(folder.metadata, 4)
    rng, failed = random.Random(0), 0
    folder.write()
    for _ in range(300):
        damaged = bytearray(raw)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        (folder.path / ".metadata").write_bytes(damaged[: rng.randrange(1, len(raw) + 400)])
        try:
            tools.values(str(folder.path))
        except DisttrainError:
            failed += 1
    assert failed > 200


def test_a_folder_with_both_is_ours(folder):
    dcp.save({"a": dt.ones(1)}, checkpoint_id=folder.write())
    assert list(tools.values(str(folder.path))) == ["a"]
    refused(folder.path.parent, "has no manifest")
