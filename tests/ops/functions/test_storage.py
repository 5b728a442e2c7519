"""The memory of tensors as storages."""

from __future__ import annotations

import pytest

import disttrain as dt


def test_a_storage_is_all_of_the_memory():
    t = dt.arange(6.0).reshape(2, 3)
    s = t[1].storage()
    assert len(s) == s.size() == 6 and s.tolist() == list(s) == [0, 1, 2, 3, 4, 5]
    assert s == t.storage() and hash(s) == hash(t.storage()) and s != dt.ones(6).storage()
    assert s.dtype is dt.float32 and s.nbytes() == 24 and s.element_size() == 4
    assert s.data_ptr() == t.data_ptr() and s.untyped() == t.untyped_storage()
    assert s.device == dt.device("cpu") and "of size 6" in repr(s)


def test_writes_reach_every_tensor():
    t = dt.arange(6.0).reshape(2, 3)
    s = t[1].storage()
    s[0] = 9.0
    s[4:6] = dt.tensor([7.0, 8.0])
    assert t.tolist() == [[9, 1, 2], [3, 7, 8]] and s[0] == 9.0
    assert t.t().storage().fill_(1.0)[2] == 1.0 and t.sum() == 6.0


def test_sharing_a_storage_shares_the_tensors():
    t = dt.arange(6.0).reshape(2, 3)
    row = t[1]
    s = row.storage().share_memory_()
    assert s.is_shared() and t.is_shared() and row.is_shared() and s == t.storage()


def test_meta():
    s = dt.ones(2, 3, device="meta").storage()
    assert len(s) == 6 and s.data_ptr() == 0 and s.untyped() is None and s.nbytes() == 24


def test_bytes_are_read_written_and_copied():
    x = dt.arange(4.0)
    s = x.untyped_storage()
    kept = s.clone()
    assert s[7] == 63 and s[-1] == 64 and s.tolist() == list(s) == kept.tolist()
    part = s[4:8]
    part.fill_(0)
    assert x.tolist() == [0.0, 0.0, 2.0, 3.0] and len(part) == 4
    s[7] = 63
    s[6:7] = 128
    assert x[1].item() == 1.0
    s.copy_(kept)
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0] and s == x.untyped_storage() != kept
    assert dt.empty(0).set_(kept).tolist() == x.tolist()
    with pytest.raises(IndexError, match="index 16 out of range for storage of size 16"):
        s[16]
    with pytest.raises(RuntimeError, match="a storage of 4 bytes given for one of 16"):
        s.copy_(part)


def test_the_bytes_of_a_file(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(8)))
    held = dt.zeros(1).untyped_storage().from_file(str(path), shared=False, nbytes=6)
    assert held.tolist() == [0, 1, 2, 3, 4, 5] and held.untyped() is held
    held[0] = 9
    assert path.read_bytes()[0] == 0  # its own copy of what is written to
    whole = type(held).from_file(str(path))
    assert whole.nbytes() == 8 and dt.as_tensor(whole[4:8].tolist()).sum().item() == 22


def test_a_file_that_is_written_to(tmp_path):
    path = tmp_path / "made"
    kind = type(dt.zeros(1).untyped_storage())
    kind.from_file(str(path), shared=True, nbytes=4)[1] = 7
    assert path.read_bytes() == b"\0\7\0\0"
