"""Steps of training: whose steps count, and what the words say."""

from __future__ import annotations

from disttrain.steps import _GIVEN_UP, Steps


class Optimizer:
    """Somebody who steps."""


def steps() -> Steps:
    return Steps(memoryview(bytearray(24)).cast("Q"), 0, 1, 2)


def test_a_step_is_counted_with_its_samples_and_its_end():
    s = steps()
    s.add(8)
    s.add(4)
    assert (s.words[0], s.words[2]) == (2, 12)
    assert s.words[1] > 0


def test_the_first_optimizer_counts_and_none_beside_it():
    s, first, other = steps(), Optimizer(), Optimizer()
    for one in (first, other, first, other):
        s.of(one)
    assert s.words[0] == 2


def test_another_counts_when_the_first_has_stopped():
    s, first, other = steps(), Optimizer(), Optimizer()
    s.of(first)
    for _ in range(_GIVEN_UP):
        s.of(other)
    assert s.words[0] == 2


def test_another_counts_when_the_first_is_gone():
    s, first = steps(), Optimizer()
    s.of(first)
    del first
    s.of(Optimizer())
    assert s.words[0] == 2


def test_the_programs_own_word_ends_the_count_of_optimizers():
    s, one = steps(), Optimizer()
    s.told(16)
    for _ in range(2 * _GIVEN_UP):
        s.of(one)
    assert (s.words[0], s.words[2]) == (1, 16)
