"""Random programs: what PyTorch makes of them, disttrain makes of them too."""

from __future__ import annotations

import pytest

# How many programs of each kind run here; python -m peers runs any others.
PROGRAMS = {
    "elementwise": 1200,
    "viewing": 1200,
    "places": 1000,
    "reducing": 1000,
    "second": 800,
    "layers": 600,
    "sampling": 400,
    "fitting": 200,
    "trainings": 200,
    "tables": 400,
    "sparsity": 600,
    "chances": 300,
}
CHUNK = 100
SHOWN = 3
CHUNKS = [(name, first) for name, count in PROGRAMS.items() for first in range(0, count, CHUNK)]


@pytest.mark.peer
@pytest.mark.parametrize("profile, first", CHUNKS)
def test_programs_do_what_pytorch_does(profile, first):
    from peers.profiles import check

    found = [check(profile, seed) for seed in range(first, first + CHUNK)]
    found = [f for f in found if f is not None]
    reports = "\n".join(f.report() for f in found[:SHOWN])
    assert not found, f"{len(found)} of {CHUNK} programs differ:\n{reports}"


@pytest.mark.peer
def test_a_seed_is_a_program():
    from peers.profiles import PROFILES, generate

    assert set(PROFILES) == set(PROGRAMS)
    for name in PROFILES:
        assert generate(name, 7) == generate(name, 7) != generate(name, 8)


@pytest.mark.peer
def test_what_is_meant_to_differ_still_differs():
    """An entry whose example no longer differs is taken out of the table."""
    from peers.deliberate import MEANT
    from peers.profiles import both

    for entry in MEANT:
        lines = tuple(entry.example.strip().splitlines())
        found, _ = both(lines)
        assert found is not None and entry.covers(found, lines), (entry.reason, found)


SHARDED = ("elementwise", "viewing", "places", "reducing", "second", "layers")


@pytest.mark.peer
@pytest.mark.parametrize("profile", SHARDED)
def test_programs_of_sharded_tensors_do_what_pytorch_does_with_wholes(profile):
    from peers.sharded import check

    shapes = [(2,), (3,), (2, 2)]
    found = [check(profile, seed, shapes[seed % 3]) for seed in range(40)]
    found = [f for f in found if f is not None and "as_strided" not in str(f[1])]
    assert not found, found[0]
