"""Generators: streams that can be seeded, read, set, cloned and pickled; one per rank."""

import pickle

import numpy as np
import pytest

import disttrain as dt
from disttrain import context
from disttrain.core.random import fork_rng
from disttrain.errors import ConfigError


def draw(generator=None):
    return dt.rand(3, generator=generator).tolist()


def test_a_seed_names_a_stream():
    a, b = dt.Generator().manual_seed(7), dt.Generator("cpu").manual_seed(7)
    assert draw(a) == draw(b) != draw(a)
    assert a.initial_seed() == 7 and a.manual_seed(-1).initial_seed() == (1 << 64) - 1
    assert a.seed() == a.initial_seed() and repr(b) == "<Generator on cpu, seed 7>"
    with pytest.raises(ConfigError, match="64 bits"):
        a.manual_seed(1 << 64)


def test_states_are_places_in_a_stream():
    g = dt.Generator().manual_seed(3)
    dt.randint(0, 9, (3,), generator=g)  # leaves half a draw behind
    state = g.get_state()
    assert state.dtype is dt.uint8
    want = draw(g)
    assert draw(g.set_state(state)) == want
    assert draw(g.set_state(state.numpy())) == want
    twin = g.set_state(state).clone_state()
    again = pickle.loads(pickle.dumps(g))
    assert draw(g) == draw(twin) == draw(again) == want
    with pytest.raises(ConfigError, match="get_state"):
        g.set_state(dt.ones(3))


def test_the_default_generator():
    dt.manual_seed(5)
    assert dt.initial_seed() == 5 and dt.default_generator.initial_seed() == 5
    state, want = dt.get_rng_state(), draw()
    dt.set_rng_state(state)
    assert draw() == want
    assert dt.seed() == dt.initial_seed()
    assert pickle.loads(pickle.dumps(dt.default_generator)) is dt.default_generator


def test_every_rank_has_its_own():
    dt.manual_seed(1)
    want = draw()
    dt.manual_seed(1)
    with context.attach(context.Rank(rank=1)):
        dt.manual_seed(2)
        draw()
    assert draw() == want


@pytest.mark.parametrize("enabled", [False, True])
def test_forked_streams_come_back(enabled):
    dt.manual_seed(4)
    want = draw()
    dt.manual_seed(4)
    with fork_rng(enabled=enabled):
        first = draw()
    assert first == want and (draw() == want) is enabled


def test_the_stream_is_the_same_on_every_machine():
    dt.manual_seed(0)
    want = np.random.Generator(np.random.SFC64(0)).random(2)
    got = np.random.Generator(np.random.SFC64(dt.initial_seed())).random(2)
    assert got.tolist() == want.tolist()
