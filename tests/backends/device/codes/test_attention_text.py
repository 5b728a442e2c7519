"""Attention by teams of threads: its text, run by a host compiler, beside the reference."""

from __future__ import annotations

import numpy as np
import pytest
from standins import cuda_on_host as host

from disttrain.backends.device.codes import attention_text
from disttrain.backends.device.codes.attention import attention, attention_backward

pytestmark = pytest.mark.skipif(host.COMPILER is None, reason="there is no C++ compiler here")
WAYS = [(False, False, False), (True, False, False), (False, True, False), (True, True, True)]
DTYPE, WIDE, NEAR = np.float32, np.float32, 2e-5
B, H, G, L, S, D, E = 1, 2, 1, 37, 35, 20, 24


def _arguments(way: tuple[bool, bool, bool]) -> tuple[list, list]:
    """Arguments of the forward and of the backward code, whose results are not written yet."""
    rng = np.random.default_rng(7)
    q, k, v, g = (
        rng.standard_normal(shape).astype(DTYPE)
        for shape in ((B, H, L, D), (B, G, S, D), (B, G, S, E), (B, H, L, E))
    )
    mask = [rng.random((B, H, L, S)) < 0.7] * way[1]
    numbers = [0.3, *((11, 5, 0.75) if way[2] else ())]
    out, lse = np.full((B, H, L, E), 9, DTYPE), np.full((B, H, L), 9, WIDE)
    forward = [q, k, v, *mask, out, lse, *numbers]
    back = [np.full(a.shape, 9, DTYPE) for a in (q, k, v)]
    return forward, [g, q, k, v, *mask, out, lse, *back, *numbers]


def _copies(args: list) -> list:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def _cases() -> list[tuple[host.CodeCase, list]]:
    """Each way, forward and backward; the backward codes are given true results of the forward."""
    cases = []
    for way in WAYS:
        forward, backward = _arguments(way)
        cases.append((host.CodeCase(attention(*way), *_copies(forward)), forward))
        attention(*way).reference(*forward)  # writes what the backward code is given
        cases.append((host.CodeCase(attention_backward(*way), *_copies(backward)), backward))
    return cases


def test_the_text_means_what_the_reference_does(tmp_path):
    cases = _cases()
    library = host.compiled([case for case, _ in cases], tmp_path)
    for case, wanted in cases:
        host.run(library, case)
        case.code.reference(*wanted)
        for got, want in zip(case.args, wanted):
            if isinstance(want, np.ndarray):
                got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
                np.testing.assert_allclose(got, want, NEAR, NEAR, err_msg=str(case.plan))


def test_teams_of_threads_are_what_runs():
    launches = [step for case, _ in _cases() for step in case.plan.launches]
    assert len(launches) == 4 * len(WAYS)
    assert all(
        "dt_team<" in step.body and attention_text.HELPERS in step.helpers for step in launches
    )
    assert not any("dt_mma" in step.body for step in launches)


@pytest.mark.parametrize("kind", attention_text.MASKS)
def test_masks_change_the_score(kind):
    assert ("s = " in attention_text.MASKS[kind]) is (kind != "none")
