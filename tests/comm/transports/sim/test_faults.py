"""Points of faults, as written and as they strike."""

import pytest

from disttrain.comm.transports.sim import faults
from disttrain.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20us", 2e-5), ("5ms", 0.005), ("1.5s", 1.5), ("2", 2.0), ("3ns", 3e-9), (" 1e-3s ", 0.001)],
)
def test_times(text, seconds):
    assert faults.seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [2.0, 0.5, 0.0015, 2e-5, 3.25e-6])
def test_times_are_read_back_as_written(value):
    assert faults.seconds_of(faults.text_of_seconds(value)) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("10GB/s", 1e10), ("200MB/s", 2e8), ("12.5GiB/s", 12.5 * 2**30), ("100Gbit/s", 1.25e10),
     ("8bps", 1.0)],
)  # fmt: skip
def test_bandwidths(text, rate):
    assert faults.bandwidth_of(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "fast", "-1s", "5 m", "1h", "10GB", "B/s"])
def test_what_is_neither(text):
    with pytest.raises(ConfigError, match="is needed"):
        faults.seconds_of(text)
    with pytest.raises(ConfigError, match="is needed"):
        faults.bandwidth_of(text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("kill", "5@all_reduce:17"),
        ("drop", "*@send:*"),
        ("kill", "0@*:1"),
        ("delay", "*@rpc:2=5ms"),
    ],
)
def test_a_fault_is_written_as_it_was_read(kind, text):
    fault = faults.parse_fault(kind, text, 8)
    assert str(fault) == text
    assert faults.flags_of([fault]) == [f"--{kind}", text]


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("kill", "5", "RANK@VERB:N is needed"),
        ("kill", "5@send:1=5ms", "RANK@VERB:N is needed"),
        ("delay", "5@send:1", "RANK@VERB:N=TIME is needed"),
        ("kill", "8@send:1", "no rank 8 among 8"),
        ("kill", "1@shout:1", "shout is no verb; one of .*all_reduce"),
        ("kill", "1@send:0", "counted from 1"),
        ("drop", "1@rpc:1", "are a stream"),
        ("delay", "1@send:1=soon", "a time such as"),
    ],
)
def test_what_is_no_fault(kind, text, problem):
    with pytest.raises(ConfigError, match=problem):
        faults.parse_fault(kind, text, 8)


def test_stragglers():
    assert faults.parse_straggler("3=2x", 4) == (3, 2.0)
    assert faults.parse_straggler("0=1.5", 4) == (0, 1.5)
    for text in ("4=2x", "1=0x", "x=2", "1"):
        with pytest.raises(ConfigError, match="RANK=FACTOR is needed"):
            faults.parse_straggler(text, 4)


def test_calls_are_counted_for_each_rank_and_verb():
    kill = faults.parse_fault("kill", "1@send:2", 4)
    late = faults.parse_fault("delay", "*@*:*=1s", 4)
    later = faults.parse_fault("delay", "1@*:*=2s", 4)
    drop = faults.parse_fault("drop", "*@recv:1", 4)
    calendar = faults.Calendar((kill, late, later, drop))
    first, other, second = (
        calendar.next(*call) for call in ((1, "send"), (0, "send"), (1, "send"))
    )
    assert (first.kill, other.kill, second.kill) == (None, None, kill)
    assert (first.delay, other.delay, second.delay) == (3.0, 1.0, 3.0)
    assert calendar.next(1, "recv").drop is drop
    assert faults.points_of(calendar.counts) == [
        (0, "send", 1), (1, "recv", 1), (1, "send", 1), (1, "send", 2),
    ]  # fmt: skip


def test_nothing_strikes_where_no_fault_is():
    calendar = faults.Calendar()
    assert calendar.next(0, "send") == faults.Struck()
    assert calendar.counts == {(0, "send"): 1}
