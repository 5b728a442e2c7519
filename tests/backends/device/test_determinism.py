"""The setting of deterministic algorithms: its numbers and names, and what is refused."""

from __future__ import annotations

import pytest

from disttrain.backends.device import determinism as d
from disttrain.errors import ConfigError


@pytest.fixture(autouse=True)
def _as_before():
    yield
    d.use_deterministic_algorithms(False)


def test_it_is_off_at_first():
    assert d.get_deterministic_debug_mode() == 0
    assert not d.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(("warn_only", "mode"), [(False, 2), (True, 1)])
def test_on_is_error_or_warn(warn_only, mode):
    d.use_deterministic_algorithms(True, warn_only=warn_only)
    assert d.get_deterministic_debug_mode() == mode
    assert d.are_deterministic_algorithms_enabled()
    assert d.is_deterministic_algorithms_warn_only_enabled() is warn_only


def test_off_forgets_warn_only():
    d.use_deterministic_algorithms(False, warn_only=True)
    assert d.get_deterministic_debug_mode() == 0


@pytest.mark.parametrize(("given", "mode"), [("default", 0), ("warn", 1), ("error", 2), (1, 1)])
def test_modes_have_names_and_numbers(given, mode):
    d.set_deterministic_debug_mode(given)
    assert d.get_deterministic_debug_mode() == mode


@pytest.mark.parametrize("given", ["loud", 3, -1, None])
def test_other_modes_are_refused_and_change_nothing(given):
    d.set_deterministic_debug_mode("warn")
    with pytest.raises(ConfigError, match="needed 0, 1, 2 or one of default, warn, error"):
        d.set_deterministic_debug_mode(given)
    assert d.get_deterministic_debug_mode() == 1
