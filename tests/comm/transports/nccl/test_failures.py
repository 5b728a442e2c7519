"""NCCL's transport where ranks disagree, fail or stay away: compared before and beside the work."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest
from comm.transports import conformance
from comm.transports.conformance import Failures
from comm.transports.nccl.ranks import outcomes_on

from disttrain import context
from disttrain.comm.calls import headers
from disttrain.comm.transports import sim
from disttrain.comm.transports.nccl.transport import CHECK
from disttrain.errors import CollectiveMismatch, CommError, Deadlock, PeerFailed, WaitTimeout
from support import device_groups
from support.ranks import values


@pytest.fixture
def ranks(four, monkeypatch, request):
    monkeypatch.setattr(conformance, "LARGE", 20_011)
    inside = (headers._PACKAGE, device_groups.__file__)
    monkeypatch.setattr(headers, "_PACKAGE", inside)
    monkeypatch.setenv(CHECK, request.cls.check if request.cls else "beside")
    return SimpleNamespace(
        run=lambda n, fn, timeout=20.0: values(outcomes_on(four, n, fn)),
        outcomes=lambda n, fn, timeout=20.0: outcomes_on(four, n, fn),
        die=sim.die,
    )


class TestBefore:
    """Every rank compares before it enqueues: the group stays usable."""

    check = "before"
    test_a_mismatch_leaves_the_group_usable = Failures.test_a_mismatch_leaves_the_group_usable
    test_lines_may_differ = Failures.test_calls_may_come_from_different_lines_with_other_shapes
    test_strict = Failures.test_a_strict_group_wants_lines_and_shapes_to_agree
    test_strict_for_all = Failures.test_strict_is_for_all_ranks_or_none
    test_a_skipped_call = Failures.test_a_skipped_call_is_shown_where_lines_came_apart
    test_a_deadline = Failures.test_a_deadline_names_who_is_missing


class TestBeside:
    """Devices work meanwhile; nobody hangs, and the error is the same."""

    check = "beside"
    test_a_dead_rank = Failures.test_a_dead_rank_is_named
    test_a_failed_rank = Failures.test_a_failed_rank_ends_every_wait
    test_calls_at_the_end = Failures.test_another_number_of_calls_is_found_at_the_end

    @pytest.mark.parametrize("wrong", conformance.MISMATCHES, ids=lambda f: f.__name__.strip("_"))
    def test_mismatch_raises_on_all_ranks(self, ranks, wrong):
        def body(group):
            group.timeout = 8.0
            wrong(group, group.rank == 1)
            group.close()

        for o in ranks.outcomes(2, body):
            assert isinstance(o.error, (CollectiveMismatch, Deadlock)), (o.rank, o)
            text = str(o.error)
            assert "rank 1" in text and ("rank 0" in text or "ranks 0" in text), text
            assert wrong.__name__ in text or "destroy_process_group" in text, text

    def test_who_comes_last_gives_nothing_to_its_device(self, ranks, four):
        """So that wrong numbers come nowhere, and the others' work is ended."""

        def body(group):
            x = np.ones(3 if group.rank else 4, np.float32)
            with pytest.raises(CollectiveMismatch, match=r"(?s)float32\[4\].*float32\[3\]"):
                group.all_reduce(x, async_op=True).wait()
            with pytest.raises(CommError, match="cannot be used any more on devices"):
                group.all_reduce(x)
            group.close(abort=True)

        ranks.run(2, body)
        assert len(four.collectives().launches) <= 1

    @pytest.mark.parametrize("n", [3, 100_000])
    def test_messages_that_do_not_fit(self, ranks, n):
        def body(group):
            if group.rank == 0:
                group.send(np.ones(n, np.float32), 1)
                group.recv(np.ones(1), 1)
            else:
                group.recv(np.zeros(n, np.int32), 0)

        sender, receiver = ranks.outcomes(2, body)
        assert isinstance(receiver.error, CollectiveMismatch), receiver
        assert "send(float32" in str(receiver.error) and "recv(int32" in str(receiver.error)
        assert isinstance(sender.error, (CollectiveMismatch, PeerFailed)), sender

    def test_messages_of_a_pair_keep_their_order(self, ranks):
        """Tags name no order that devices could keep: who asks for another one is told."""

        def body(group):
            if group.rank == 0:
                group.send(np.ones(1), 1, tag=0)
                group.send(np.ones(1), 1, tag=1)
                return None
            with pytest.raises(CommError, match="receive them in that order"):
                group.recv(np.zeros(1), 0, tag=1)
            return True

        assert ranks.outcomes(2, body)[1].value

    def test_a_wait_may_end_before_the_device(self, ranks, tmp_path):
        def body(group):
            x = np.ones(2)
            if group.rank == 0:
                work = group.all_reduce(x, async_op=True)
                assert not work.is_completed()
                with pytest.raises(WaitTimeout, match=r"rank 1 has not arrived"):
                    work.wait(timeout=0.05)
                (tmp_path / "ended").touch()
                work.wait()
            else:
                context.wait_until((tmp_path / "ended").exists, lambda: "the other's wait to end")
                group.all_reduce(x)
            group.close()
            return x[0]

        assert ranks.run(2, body) == [2.0, 2.0]

    def test_what_nccl_itself_finds_ends_every_wait(self, ranks, four):
        def body(group):
            x = np.ones(2)
            group.all_reduce(x)
            if group.rank == 0:
                four.collectives().fail_all()
            with pytest.raises(CommError, match="NCCL reports: RemoteError: as the test wants it"):
                while True:
                    group.all_reduce(x)
            group.close(abort=True)

        ranks.run(2, body)
        assert not four.collectives().comms, "all were aborted"

    def test_a_device_that_hangs_ends_at_the_deadline(self, ranks, four, tmp_path):
        def body(group):
            group.all_reduce(np.ones(2))
            group.barrier()
            group.timeout = 0.3
            four.collectives().hang_all()
            work = group.all_reduce(np.ones(2), async_op=True)
            (tmp_path / str(group.rank)).touch()
            context.wait_until(
                lambda: len(os.listdir(tmp_path)) == 2, lambda: "the other rank to call it", 20
            )
            with pytest.raises(WaitTimeout, match="all ranks have called it"):
                context.sleep(0.5)
                work.wait()
            group.close(abort=True)

        ranks.run(2, body)


def test_a_failed_rank_is_named_on_the_others(ranks):
    def body(group):
        if group.rank == 1:
            raise ValueError("on purpose")
        with pytest.raises(PeerFailed, match="rank 1"):
            group.all_reduce(np.ones(2))

    assert ranks.outcomes(2, body)[0].ok
