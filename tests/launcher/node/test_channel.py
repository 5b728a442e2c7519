"""What the agent and its keeper say to each other, and what happens when one is not there."""

from __future__ import annotations

import pytest

from disttrain.errors import LaunchError
from disttrain_launcher.node.channel import Channel, Unread, pair, shortened

pytestmark = pytest.mark.simulated


@pytest.fixture
def ends():
    made = [Channel(sock) for sock in pair()]
    yield made
    for end in made:
        end.close()


def test_messages_come_whole_and_in_their_order(ends):
    a, b = ends
    assert b.receive() == []
    a.send("state", state="running", report={"rank": 1})
    a.send("say", text="é\n")
    assert b.receive() == [
        {"kind": "state", "state": "running", "report": {"rank": 1}},
        {"kind": "say", "text": "é\n"},
    ]
    b.send("alive", at=1.5)
    assert a.receive() == [{"kind": "alive", "at": 1.5}]
    assert a.open and b.open and a.fileno() != b.fileno()


def test_what_was_said_before_an_end_is_heard(ends):
    a, b = ends
    a.send("last")
    b.send("unread")  # so that the end is a reset
    a.close()
    assert b.receive() == [{"kind": "last"}] and not b.open
    assert b.receive() == []
    b.send("nobody hears")  # is no error


def test_who_does_not_read_is_not_waited_for(ends):
    a, _ = ends
    with pytest.raises(Unread, match="does not read"):
        for _ in range(100_000):
            a.send("say", text="x" * 1000)


def test_a_message_that_is_too_long_is_not_sent(ends):
    a, b = ends
    with pytest.raises(LaunchError, match=r"a message of \d+ bytes between agent and keeper"):
        a.send("say", text="x" * (200 << 10))
    assert b.receive() == []


def test_a_text_that_cannot_be_written_is_sent_with_marks(ends):
    a, b = ends
    a.send("say", text="half \ud800 a letter")
    assert b.receive()[0]["text"] == "half ? a letter"


def test_of_a_long_text_the_end_is_kept(ends):
    text = "".join(f"line {i}\n" for i in range(10_000))
    short = shortened(text)
    assert short.startswith("...\n") and short.endswith("line 9999\n") and len(short) < len(text)
    assert shortened("short") == "short"
    ends[0].send("state", report={"traceback": shortened("é" * 10**6)})
    assert ends[1].receive()[0]["report"]["traceback"].endswith("é")
