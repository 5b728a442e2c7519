"""The launcher's own variables, read before anything of the package may be loaded."""

from __future__ import annotations

import subprocess
import sys

from disttrain_launcher.options.environment import LINE_PREFIX, environment


def test_an_empty_variable_means_the_default(monkeypatch):
    monkeypatch.setenv(LINE_PREFIX.name, "")
    assert LINE_PREFIX.text() == "[rank ${rank}] "
    monkeypatch.setenv(LINE_PREFIX.name, "${rank}: ")
    assert LINE_PREFIX.text() == "${rank}: "


def test_it_is_read_when_it_is_asked_for(monkeypatch):
    monkeypatch.setenv("COLUMNS", "77")
    assert environment()["COLUMNS"] == "77"
    assert environment({"COLUMNS": "5"}) == {"COLUMNS": "5"}


def test_options_are_read_before_numpy_is_loaded():
    """Its threads are counted when it is loaded, and the options say how many there are to be."""
    look = (
        "import sys; import disttrain_launcher.command.dispatch;"
        "from disttrain_launcher.clusters import kubernetes, mpi;"
        "print([m for m in sys.modules if m.partition('.')[0] in ('numpy', 'disttrain')])"
    )
    said = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
