"""Writing to a disk: modes, locks, room, and errors that say what is needed."""

from __future__ import annotations

import errno
import fcntl
import os

import pytest

from disttrain.serialize import disk


def test_files_are_for_their_owner_alone_where_that_is_wanted(monkeypatch):
    monkeypatch.delenv("DISTTRAIN_PRIVATE_FILES", raising=False)
    assert (disk.file_mode(), disk.folder_mode()) == (0o666, 0o777)
    monkeypatch.setenv("DISTTRAIN_PRIVATE_FILES", "1")
    assert (disk.file_mode(), disk.folder_mode()) == (0o600, 0o700)


def test_a_lock_is_held_while_its_file_is_open(tmp_path):
    with open(tmp_path / "a", "w") as first, open(tmp_path / "a") as second:
        assert disk.lock(first.fileno())
        assert not disk.lock(second.fileno(), fcntl.LOCK_NB)
        first.close()
        assert disk.lock(second.fileno(), fcntl.LOCK_NB)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_found_before_anything_is_written(monkeypatch, number):
    def full(*args):
        raise OSError(number, "full")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="full"):
        disk.reserve(0, 10)


def test_a_file_system_that_reserves_nothing_is_no_full_disk(monkeypatch):
    def cannot(*args):
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "posix_fallocate", cannot)
    disk.reserve(0, 10)


def test_errors_say_what_is_needed(tmp_path):
    path = str(tmp_path / "gone" / "a")
    full = disk.write_error(OSError(errno.ENOSPC, "full"), str(tmp_path / "a"), 10, "; end")
    assert full.errno == errno.ENOSPC
    assert "10 bytes are needed" in str(full) and str(full).endswith("; end")
    gone = disk.write_error(OSError(errno.ENOENT, "no such"), path, 10)
    assert f"the folder {tmp_path / 'gone'} must exist" in str(gone)


def test_names_of_a_folder_that_is_not_there(tmp_path):
    disk.sync_folder(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        disk.sync_folder(str(tmp_path / "gone"))


def test_a_host_has_eight_digits():
    assert len(disk.host()) == 8 and int(disk.host(), 16) >= 0
