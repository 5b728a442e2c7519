"""The cache of compiled kernels, its loader, and what happens where there is none."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from disttrain.backends import cache
from disttrain.backends.llvm import cached, native, objfile

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
import numpy as np
from disttrain.backends.fused import softmax as fs
y = fs.softmax(np.zeros((2, 4), np.float32))
assert (y == 0.25).all()
print("llvmlite" in sys.modules, fs._SOFTMAX[y.dtype].native)
"""


def run(home, **env):
    """Run PROGRAM in a process of its own; returns (was LLVM loaded, is the code generated)."""
    full = {**os.environ, "XDG_CACHE_HOME": str(home), **env}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=full, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def home(tmp_path):
    if native.why_unavailable():
        pytest.skip(native.why_unavailable())
    return tmp_path


def kernels(home):
    return sorted((home / "disttrain" / "kernels").iterdir())


def test_a_kernel_is_compiled_once(home):
    assert run(home) == ["True", "True"]
    (file,) = kernels(home)
    assert file.stat().st_mode & 0o077 == 0 and file.parent.stat().st_mode & 0o077 == 0
    assert run(home) == ["False", "True"]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_file_is_compiled_anew(home, damage):
    run(home)
    (file,) = kernels(home)
    good = file.read_bytes()
    bad = {"cut": good[:-50], "flip": good[:300] + b"\xff" + good[301:], "empty": b""}[damage]
    assert bad != good
    file.write_bytes(bad)
    assert run(home) == ["True", "True"]
    assert file.read_bytes() == good


def test_a_directory_that_others_may_write_to_is_not_used(home):
    folder = home / "disttrain" / "kernels"
    folder.mkdir(parents=True, mode=0o700)
    folder.chmod(0o777)
    assert run(home) == ["True", "True"]
    assert list(folder.iterdir()) == []


def test_a_file_of_somebody_else_or_a_link_is_not_read(tmp_path):
    cache.write(str(tmp_path), "key", b"content")
    assert cache.read(str(tmp_path), "key") == b"content"
    os.symlink(tmp_path / "key", tmp_path / "link")
    assert cache.read(str(tmp_path), "link") is None
    (tmp_path / "key").chmod(0o666)
    assert cache.read(str(tmp_path), "key") is None
    assert cache.read(str(tmp_path), "absent") is None


def test_without_a_usable_home_there_is_no_cache(tmp_path):
    (tmp_path / "file").write_text("")
    if not native.why_unavailable():
        assert run(tmp_path / "file") == ["True", "True"]
    cache.write(None, "key", b"x")
    assert cache.read(None, "key") is None


def test_without_llvmlite_numpy_computes(home, tmp_path):
    blocked = tmp_path / "blocked"
    (blocked / "llvmlite").mkdir(parents=True)
    (blocked / "llvmlite" / "__init__.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join([str(blocked), str(ROOT)])
    assert run(home, PYTHONPATH=path) == ["False", "False"]


def test_the_loader_refuses_what_it_does_not_know():
    for code in (b"", b"\x7fELF" + bytes(100), b"MZ" * 50):
        with pytest.raises(objfile.ObjectError, match="not an x86-64 ELF"):
            objfile.load(code, lambda name: 0)


def test_addresses_of_missing_functions_are_errors():
    if native.why_unavailable():
        pytest.skip(native.why_unavailable())
    with pytest.raises(objfile.ObjectError, match="no function"):
        native._process().resolve("no_such_function")
    assert native._process().resolve("memcpy")


def test_the_layout_of_arrays_is_checked():
    assert native._layout_is_known()
    assert np.ones(1).flags.num & 0x501 == 0x501


def test_code_of_a_text_is_kept_for_one_processor_and_one_compiler(home, monkeypatch):
    """Machines of one name that share a home may not be allowed the same instructions."""
    text = "define void @f() {\n  ret void\n}\n"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    here, known, asked = native.host.cpu(), native.host.llvmlite_version(), []

    def keep(cpu, version):
        cached._compiled_by.cache_clear()
        monkeypatch.setattr(native.host, "cpu", lambda: cpu)
        monkeypatch.setattr(native.host, "llvmlite_version", lambda: version)
        asked.clear()
        cached.kept(text, lambda: asked.append(1) or text, lambda name: 0)
        return bool(asked)

    try:
        assert keep(here, known) and not keep(here, known)
        assert keep(replace(here, features=here.features - {"avx512f", "avx2"}), known)
        assert keep(here, "another")
    finally:
        cached._compiled_by.cache_clear()
