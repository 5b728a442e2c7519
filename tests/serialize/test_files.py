"""How a file is written: drafts, what is left by a killed save, saves beside each other."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat

import numpy as np
import pytest

from disttrain.core import wrap
from disttrain.core.types import dtypes
from disttrain.errors import WriteError
from disttrain.serialize import (
    load,
    save,
)


def tensor(values, kind=dtypes.float32):
    return wrap(np.asarray(values, dtype=kind.np))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.safetensors"


@pytest.fixture
def umask():
    before = os.umask(0o027)
    yield os.umask
    os.umask(before)


def test_mode_and_nothing_left_over(path, umask, monkeypatch):
    for mask, private, mode in ((0o027, "", 0o640), (0o022, "0", 0o644), (0, "1", 0o600)):
        path.unlink(missing_ok=True)
        umask(mask)
        monkeypatch.setenv("DISTTRAIN_PRIVATE_FILES", private)
        save({"a": tensor([1])}, path)
        assert stat.S_IMODE(path.stat().st_mode) == mode
    path.chmod(0o644)
    save({"a": tensor([2])}, str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(path.parent) == [path.name]


def test_symbolic_links_are_followed(path, tmp_path):
    link = tmp_path / "latest"
    link.symlink_to(path)
    save({"a": tensor([1.0])}, link)
    assert link.is_symlink() and load(link)["a"].array[0] == load(path)["a"].array[0] == 1


def test_devices_and_pipes_are_written_not_replaced(tmp_path):
    save({"a": tensor([1.0])}, os.devnull)
    assert not os.path.isfile(os.devnull)
    read, write = os.pipe()
    save({"a": tensor([1.0])}, f"/dev/fd/{write}")
    os.close(write)
    with open(read, "rb") as f:
        assert load(f)["a"].array[0] == 1


def test_a_folder_that_is_missing(tmp_path):
    with pytest.raises(WriteError, match="must exist") as info:
        save({}, tmp_path / "no" / "x")
    assert info.value.errno == errno.ENOENT and isinstance(info.value, OSError)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "no")


def test_a_file_limit_says_needed_and_free_and_keeps_the_old_file(path):
    """A full disk is told in the same words; a limit on the size of files needs no file system."""
    save({"a": tensor([1.0])}, path)
    before = path.read_bytes()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
            save({"a": tensor(np.zeros(1 << 16))}, path)
        except WriteError as error:
            code = 0 if "bytes are needed" in str(error) and "are free" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]


def test_killed_while_saving_leaves_the_old_file_alone(path):
    save({"a": tensor([1.0])}, path)
    before = path.read_bytes()
    for delay in (0.0, 0.002, 0.005, 0.01, 0.02):
        pid = os.fork()
        if pid == 0:
            try:
                big = tensor(np.zeros(1 << 20))
                while True:
                    save({"a": tensor([1.0]), "b": big}, path)
            finally:
                os._exit(1)
        signal.sigtimedwait([], delay)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert path.read_bytes() == before or load(path)["b"].shape == (1 << 20,)


@pytest.fixture(params=["unnamed", "named"])
def drafts(request, monkeypatch):
    """With and without a file system that knows files without names."""
    if request.param == "named":
        opened = os.open

        def without(path, flags, *rest, **more):
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "not here")
            return opened(path, flags, *rest, **more)

        monkeypatch.setattr(os, "open", without)
    return request.param


def stopped_while_saving(path, monkeypatch):
    """A process that stands still just before its draft gets the final name."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:

        def stop(draft, final):
            os.write(writer, b"1")
            signal.pause()

        monkeypatch.setattr(os, "replace", stop)
        save({"a": tensor([2.0])}, path)
        os._exit(1)
    assert os.read(reader, 1) == b"1"
    os.close(reader), os.close(writer)
    return pid


def test_the_next_save_removes_what_a_killed_one_left(path, drafts, monkeypatch):
    victim = stopped_while_saving(path, monkeypatch)
    folder = path.parent
    (draft,) = os.listdir(folder)
    own = folder / ".mine.0123456789ab.tmp"
    own.touch()
    other = folder / "other.safetensors"
    save({"a": tensor([1.0])}, other)
    assert (folder / draft).exists()  # its writer lives
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    save({"a": tensor([1.0])}, other)
    assert sorted(os.listdir(folder)) == [own.name, other.name]
    assert load(other)["a"].array[0] == 1


def test_another_hosts_draft_is_removed_when_it_is_old(path):
    """Its lock may not be seen here."""
    draft = path.parent / ".x.pt.00000000-0123456789ab.disttrain-draft"
    draft.touch()
    save({}, path)
    assert draft.exists()
    os.utime(draft, (0, 0))
    save({}, path)
    assert not draft.exists()


def test_saves_beside_each_other_leave_each_other_alone(path, drafts):
    """Every process removes strays all the time; none is another's draft."""
    pids = []
    for number in range(3):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for _ in range(30):
                    save({"a": tensor([float(number)])}, path.parent / f"{number}")
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0, 0, 0]
    assert sorted(os.listdir(path.parent)) == ["0", "1", "2"]


def test_a_draft_that_is_taken_before_it_is_locked_is_made_anew(path, monkeypatch):
    lock, taken = fcntl.flock, []

    def late(fd, flags):
        if not taken:
            taken.extend(os.listdir(path.parent))
            os.unlink(path.parent / taken[0])
        lock(fd, flags)

    def without(*args, **more):
        if args[1] & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not here")
        return opened(*args, **more)

    opened = os.open
    monkeypatch.setattr(os, "open", without)
    monkeypatch.setattr(fcntl, "flock", late)
    save({"a": tensor([1.0])}, path)
    assert taken and os.listdir(path.parent) == [path.name]
    assert load(path)["a"].array[0] == 1
