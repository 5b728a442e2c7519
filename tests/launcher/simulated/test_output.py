"""The streams of simulated ranks: whose line it is, which appear, which go to files."""

from __future__ import annotations

import io

import pytest

from disttrain_launcher.node.output import Stream
from disttrain_launcher.simulated.output import RankStream

pytestmark = pytest.mark.simulated


class Ranks:
    """A stream for ranks of which the test says who speaks."""

    def __init__(self, num_ranks=2, **more):
        self.text, self.rank = io.StringIO(), None
        self.stream = RankStream(self.text, lambda: self.rank, num_ranks, **more)

    def say(self, rank, text):
        self.rank = rank
        assert self.stream.write(text) == len(text)
        return self.text.getvalue()


def test_lines_appear_when_they_are_whole_with_their_rank():
    ranks = Ranks()
    assert ranks.say(0, "one ") == "" and ranks.say(1, "two\n") == "[rank 1] two\n"
    assert ranks.say(0, "three\nfour") == "[rank 1] two\n[rank 0] one three\n"
    ranks.stream.finish()
    assert ranks.text.getvalue().endswith("[rank 0] four\n")
    ranks.stream.finish()
    assert ranks.text.getvalue().count("four") == 1


def test_the_process_itself_speaks_without_a_prefix_and_at_once():
    ranks = Ranks()
    ranks.say(0, "open")
    assert ranks.say(None, "dtrun: ") == "dtrun: "


def test_one_rank_that_is_shown_needs_no_prefix():
    assert Ranks(1).say(0, "a\n") == "a\n"
    ranks = Ranks(3, shown=(1,))
    assert ranks.say(0, "hidden\n") == "" and ranks.say(1, "seen\n") == "seen\n"


@pytest.mark.parametrize("text", ["a\n\nb\n", "1%\r2%\n", "x\r\n\r\ny\n", "\n"])
def test_prefixes_stand_where_those_of_processes_do(text):
    process = Stream("[rank 0] ", None)
    assert Ranks().say(0, text).encode() == process._prefixed(text.encode())
    process.started(), process.finish(0.0)


@pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_what_ends_no_line_on_a_terminal_ends_none_here(mark):
    assert Ranks().say(0, f"a{mark}b\n") == f"[rank 0] a{mark}b\n"


def test_each_rank_s_lines_go_to_its_file_too(tmp_path):
    ranks = Ranks(3, shown=(0,), path=lambda rank: str(tmp_path / f"{rank}") if rank else "")
    for rank in range(3):
        ranks.say(rank, f"é {rank}\nopen")
    ranks.stream.finish()
    assert ranks.text.getvalue() == "é 0\nopen\n"
    for rank in (1, 2):
        assert (tmp_path / f"{rank}").read_text(encoding="utf-8") == f"é {rank}\nopen\n"
    assert not (tmp_path / "0").exists()


def test_bytes_are_text_of_the_stream_s_kind():
    class Coded(io.StringIO):
        encoding = "latin-1"

    text = Coded()
    stream = RankStream(text, lambda: 1, 2)
    assert stream.buffer.write(b"caf\xe9\n") == 5 and stream.buffer.writable()
    stream.buffer.flush()
    assert text.getvalue() == "[rank 1] café\n" and stream.encoding == "latin-1"


def test_it_is_as_its_stream():
    stream = Ranks().stream
    assert stream.writable() and not stream.isatty() and stream.errors is None
    with pytest.raises(OSError):
        stream.fileno()
    print("by print", file=stream, flush=True)
