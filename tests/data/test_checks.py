"""Arguments of loaders: what is refused, what is warned of."""

from __future__ import annotations

import warnings

import pytest

from disttrain.data.checks import Count, check_batches, check_workers
from disttrain.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((-1, 0, None, False, None), "num_workers"), ((1.0, 0, None, False, None), "num_workers"),
        ((0, -1, None, False, None), "timeout"), ((1, 0, 0, False, None), "prefetch_factor"),
        ((0, 0, 2, False, None), "prefetch_factor"), ((0, 0, None, True, None), "persistent"),
        ((0, 0, None, False, "fork"), "multiprocessing_context"),
        ((1, 0, None, False, "x"), "fork"),
    ],
)  # fmt: skip
def test_workers_that_make_no_sense(given, told):
    with pytest.raises(ConfigError, match=told):
        check_workers(*given)


def test_workers_that_do():
    check_workers(0, 0, None, False, None)
    check_workers(1, 5, 3, True, "fork")
    with pytest.raises(TypeError, match="valid context object"):
        check_workers(1, 0, None, False, 7)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((True, 1, True, None, None, False), "shuffle"),
        ((True, 1, False, [0], None, False), "sampler"),
        ((False, 1, True, [0], None, False), "mutually exclusive with shuffle"),
        ((False, 2, False, None, [[0]], False), "batch_sampler"),
        ((False, 1, False, None, [[0]], True), "batch_sampler"),
        ((False, None, False, None, None, True), "drop_last"),
    ],
)
def test_batches_that_contradict(given, told):
    with pytest.raises(ConfigError, match=told):
        check_batches(*given)


def test_batches_that_do_not():
    check_batches(True, 4, False, None, None, True)
    check_batches(False, 1, None, None, [[0]], False)
    check_batches(False, None, True, None, None, False)


@pytest.mark.parametrize("workers", [0, 2])
def test_more_than_was_promised_is_warned_of(workers):
    count = Count(range(2), 1, workers)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        count.one_more()
    with pytest.warns(UserWarning, match="reported to be 1 .* but 2 samples") as told:
        count.one_more()
    assert ("get_worker_info" in str(told[0].message)) is bool(workers)
