"""Memory of arrays that are gone serves the next ones without going back to the system."""

import resource

import numpy as np

from disttrain.backends import heap


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def test_memory_is_used_again_without_page_faults():
    assert heap.keep()
    size = 3 << 20  # of a few pages less than numpy asks huge pages for

    def step() -> None:
        arrays = [np.ones(size, np.uint8) for _ in range(8)]
        del arrays

    for _ in range(3):
        step()
    before = _faults()
    for _ in range(5):
        step()
    pages = 5 * 8 * size // resource.getpagesize()
    assert _faults() - before < pages // 20


def test_what_the_user_chose_stays(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    assert not heap.keep()
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=1000000")
    assert not heap.keep()
