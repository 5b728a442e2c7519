"""Call sites and warnings name the line of the program, not those of this package."""

from __future__ import annotations

import inspect
import logging
import warnings

import pytest

from disttrain.trace import _HERE, call_site, logger, warn

# Code that claims to be a file of the package, or of what it calls its functions through.
INSIDE = f"{_HERE}within.py"


def within(text, file=INSIDE, **names):
    """The function ``f`` of ``text``, as if it stood in ``file``."""
    space = {"call_site": call_site, "warn": warn, **names}
    exec(compile(text, file, "exec"), space)
    return space["f"]


def line():
    return inspect.currentframe().f_back.f_lineno


def test_a_call_site_is_the_innermost_line_outside_of_the_package():
    inner = within("def f():\n    return call_site()")
    outer = within("def f():\n    return g()", g=inner)
    said, here = outer(), line()
    name = "test_a_call_site_is_the_innermost_line_outside_of_the_package"
    assert said == f"{__file__}:{here} in {name}"


def test_skipped_frames_are_not_looked_at():
    def wrapper():
        return call_site(2)

    said, here = wrapper(), line()
    assert said.startswith(f"{__file__}:{here} in test_skipped")


def test_a_folder_that_only_begins_with_the_package_s_name_is_a_program():
    other = _HERE.rstrip("/") + "_mine/train.py"
    said = within("def f():\n    return call_site()", other)()
    assert said == f"{other}:2 in f"


@pytest.mark.parametrize("through", [INSIDE, "contextlib", "functools"])
def test_a_warning_names_the_program_s_line(through):
    file = through if through == INSIDE else __import__(through).__file__
    inner = within("def f():\n    warn('old', DeprecationWarning)")
    outer = within("def f():\n    g()", file, g=inner)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        outer()
        here = line() - 1
    assert [(w.filename, w.lineno, w.category) for w in seen] == [
        (__file__, here, DeprecationWarning)
    ]
    assert str(seen[0].message) == "old"


def test_a_warning_is_a_user_warning_where_nothing_else_is_said():
    with pytest.warns(UserWarning, match="careful") as seen:
        warn("careful")
    assert seen[0].filename == __file__ and seen[0].category is UserWarning


def test_a_logger_is_that_of_the_name():
    assert logger("disttrain.some") is logging.getLogger("disttrain.some")
