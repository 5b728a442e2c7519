"""Whatever the program is given, it gets, and the launcher does not look at it."""

import pytest

from disttrain_launcher.options import forwarding
from disttrain_launcher.options.command_line import parse


@pytest.mark.parametrize(
    "flags, program",
    [
        ([], ["t.py", "--a", "1"]),  # flags of ours that begin so are several
        ([], ["t.py", "--n=2", "-h", "--help", "--nproc-per-node", "9"]),
        ([], ["t.py", "--my_flag", "a b", "-"]),
        ([], ["t.py", "--x", "--", "--y"]),
        (["--nproc-per-node", "2"], ["t.py", "--nnod", "x"]),
        (["--nproc_per_node=2"], ["t.py", "-m"]),
        (["--max-rest", "2"], ["t.py", "--max-rest"]),
        (["-m"], ["package.t", "-m"]),
        (["-r3"], ["t.py", "-r"]),
        (["-t", "3"], ["t.py", "--tee"]),
        (["-mr", "3"], ["package.t"]),
        (["--standalone"], ["t.py", "--standalone"]),
    ],
)
def test_arguments_reach_the_program_as_they_are(flags, program):
    assert parse([*flags, *program], {}).program == tuple(program)


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ("-- t.py --", "t.py --"),
        ("-- t.py -- x", "t.py -- x"),
        ("-- t.py --x", "t.py --x"),
        ("t.py -- --x", "t.py --x"),
        ("t.py -- -- x", "t.py -- x"),
        ("t.py a -- b", "t.py a -- b"),
        ("t.py --", "t.py"),
        ("-m -- p.t -- x", "p.t -- x"),
    ],
)
def test_two_dashes_beside_the_program_end_the_flags(words, program):
    """What torchrun gives its programs for these; and what another dtrun gets gives it the same."""
    words = ["--max-restarts", "1", *words.split()]
    assert parse(words, {}).program == tuple(program.split())
    p, actions = forwarding.parser(("program", "help"))
    given = p.parse_args(words)
    again = [*forwarding.words(actions, given), *forwarding.program(p, given)]
    assert parse(again, {}).program == tuple(program.split())


@pytest.mark.parametrize("words", [["--max-restarts"], ["-t"], [], ["--"]])
def test_flags_alone_are_no_job(words, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(words, {})
    assert ended.value.code == 2
    assert "expected one argument" in (said := capsys.readouterr().err) or "no program" in said


def test_torchruns_flags_are_shortened_as_there():
    options = parse(["--t=3", "--re", "1", "t.py"], {})
    assert (options.tee, options.redirects, options.program) == ("3", "1", ("t.py",))
