"""Which steps of a program go into graphs, as data."""

from disttrain.compile.replays.parts import DEVICE, FIXED, HOST, Facts, divide


def told(steps, host=(), fixed=(), roots=None):
    slots = {s for f in steps for s in (*f.given, *f.made)}
    places = {s: HOST if s in host else FIXED if s in fixed else DEVICE for s in slots}
    return [(p.recorded, p.steps, p.takes) for p in divide(steps, places, roots or {})]


def test_updates_stand_between_and_what_they_make_is_taken():
    steps = [
        Facts((0,), (1,)), Facts((1,), (2,)), Facts((2,), (3,), alone=True), Facts((3, 1), (4,)),
    ]  # fmt: skip
    assert told(steps) == [(True, [0, 1], ()), (False, [2], ()), (True, [3], (3,))]


def test_the_hosts_steps_come_before_and_their_numbers_are_not_recorded():
    steps = [Facts((0,), (1,)), Facts((9,), (8,)), Facts((1,), (2,)), Facts((2, 8), (3,))]
    assert told(steps, host={8, 9}) == [(False, [1], ()), (True, [0, 2], ()), (False, [3], ())]
    assert told(steps, fixed={8, 9}) == [(False, [1], ()), (True, [0, 2, 3], ())]


def test_the_hosts_steps_follow_what_they_read():
    steps = [
        Facts((0,), (1,)), Facts((1,), (8,), alone=True), Facts((1,), (2,)), Facts((8,), (7,)),
    ]  # fmt: skip
    assert told(steps, host={7, 8}) == [
        (True, [0], ()), (False, [1, 3], ()), (True, [2], ()),
    ]  # fmt: skip


def test_writes_to_what_single_steps_made_stay_with_them():
    steps = [Facts((0,), (1,), alone=True), Facts((1,), (2,), view=True), Facts((2,), (), (2,))]
    assert told(steps, roots={2: 1}) == [(False, [0, 1, 2], ())]
