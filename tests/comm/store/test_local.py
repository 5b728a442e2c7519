"""Stores in a file: between processes, private, made anew."""

from __future__ import annotations

import gc
import os
import stat
import struct
from contextlib import closing

import pytest

from disttrain.comm.store import (
    FileStore,
)
from disttrain.errors import StoreError
from support.ranks import run_ranks


def _meet(store):
    """Every rank says its name and hears the others'."""
    me = store.add("ranks", 1)
    store.set(f"name/{me}", str(me))
    return b"".join(store.multi_get([f"name/{i}" for i in (1, 2, 3)], 10))


def test_file_store_between_processes(tmp_path):
    path = tmp_path / "store"

    def body(rank):
        with closing(FileStore(path, 3)) as store:
            said = _meet(store)
            store.add("done", 1)
            while store.get("done") != b"3":
                pass
            return said

    assert run_ranks(3, body) == [b"123"] * 3
    assert not path.exists()  # the last one removed it


def test_file_store_is_private_and_survives_a_torn_entry(tmp_path):
    path = tmp_path / "store"
    FileStore(path).set("a", "1")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with open(path, "ab") as f:
        f.write(struct.pack("<I", 500) + b"half an entry of a killed writer")
    store = FileStore(path)
    assert store.get("a") == b"1"
    store.set("b", "2")
    assert FileStore(path).multi_get(["a", "b"]) == [b"1", b"2"]
    other = tmp_path / "novel"
    other.write_text("It was a dark and stormy night")
    with pytest.raises(StoreError, match="not a store"):
        FileStore(other).get("a", 0)


def test_a_file_store_removes_its_file_when_nobody_uses_it(tmp_path):
    path = tmp_path / "store"
    first, second = FileStore(path, 2), FileStore(path, 2)
    first.set("k", "v")
    del first
    gc.collect()
    assert second.get("k") == b"v"
    del second
    gc.collect()
    assert not path.exists()


def test_a_file_store_may_be_made_anew_at_any_moment(tmp_path):
    """Removed by the last user while others come: what these write is never lost."""

    def body(rank):
        for k in range(60):
            store = FileStore(tmp_path / "store", 3)
            store.set(f"{rank}/{k}", b"x")
            assert store.get(f"{rank}/{k}", 5) == b"x"
            store.close()

    run_ranks(3, body)
