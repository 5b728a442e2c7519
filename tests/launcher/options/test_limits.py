"""Limits of the machine: the table, and which of them an error speaks of."""

from __future__ import annotations

import errno

import pytest

from launcher.options import limits


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EMFILE, "ulimit -n"), (errno.ENFILE, "fs.file-max"), (errno.EAGAIN, "ulimit -u"),
        (errno.ENOMEM, "memory is short"), (errno.EFBIG, "ulimit -f"), (errno.ENOSPC, "df -i"),
        (errno.EDQUOT, "quota"), (errno.EPERM, "--print-limits"), (None, "--print-limits"),
    ],
)  # fmt: skip
def test_an_error_speaks_of_a_limit(number, told):
    assert told in limits.advice(OSError(number, "no"), 4)


def test_what_is_needed_grows_with_the_ranks():
    assert "; 88 are needed" in limits.advice(OSError(errno.EMFILE, ""), 4)
    assert "; 7 and the threads" in limits.advice(OSError(errno.EAGAIN, ""), 4)


def test_the_table_has_a_value_in_each_row():
    rows = limits.table().splitlines()
    assert len(rows) == 9
    assert all(row[48:50] == "  " and row[:48].strip() and row[50:].strip() for row in rows)


def test_pids_are_a_number_or_words():
    assert limits.pids_max() in ("max", "no known limit") or limits.pids_max().isdigit()


def test_limits_of_nothing_are_left_alone():
    limits.restore_open_files((0, 0))
