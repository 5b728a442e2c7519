"""``python -m disttrain.compat.FACE``: what it says, and how a program runs."""

from __future__ import annotations

import sys

import pytest

from disttrain.compat.running import run

pytestmark = pytest.mark.simulated


def test_a_program_runs_with_its_words(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside.py").write_text("")
    program = tmp_path / "program.py"
    program.write_text("import sys, beside\nprint(__name__, sys.argv[1:])")
    done = []
    assert run("jax", "JAX", lambda: done.append(1), [str(program), "a", "-b"]) == 0
    assert done == [1] and capsys.readouterr().out == "__main__ ['a', '-b']\n"


def test_what_is_missing_is_told(capsys):
    assert run("jax", "JAX", list, []) == 2 and "name the script" in capsys.readouterr().err
    assert run("jax", "JAX", list, ["gone.py"]) == 2 and "gone.py" in capsys.readouterr().err
    assert run("jax", "JAX", list, ["--help"]) == 0 and "import jax" in capsys.readouterr().out
