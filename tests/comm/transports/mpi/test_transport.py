"""The MPI transport passes the conformance suite, in one job of four ranks."""

from __future__ import annotations

import pytest
from comm.transports.conformance import Conformance, Failures

from disttrain import context, rpc
from support.mpi_job import MPIEXEC, Job

pytestmark = pytest.mark.skipif(
    not MPIEXEC.exists(), reason="MPICH's wheel is not installed (pip install 'disttrain[mpi]')"
)


@pytest.fixture(scope="module")
def mpi_job(request):
    with Job(request.session.items, __file__, num_ranks=4) as job:
        yield job


@pytest.fixture
def ranks(mpi_job, request):
    return mpi_job.replay(request.node)


class TestMpi(Conformance):
    pass


class TestMpiFailures(Failures):
    test_a_dead_rank_is_named = None  # mpiexec ends them all, which test_ending.py looks at


@pytest.mark.parametrize("world", [3])
class TestSeveralRounds:
    """As in groups of many ranks, which meet in several rounds, and as between hosts, where MPI
    reduces."""

    settings = {"radix": 2, "fixed_order": False}

    test_all_reduce = Conformance.test_all_reduce
    test_all_reduce_large = Conformance.test_all_reduce_large
    test_every_verb_async = Conformance.test_every_verb_async
    test_async_operations_keep_their_order = Conformance.test_async_operations_keep_their_order
    test_split = Conformance.test_split


class TestSeveralRoundsFailures:
    settings = {"radix": 2, "fixed_order": False}

    test_calls_from_different_lines = (
        Failures.test_calls_may_come_from_different_lines_with_other_shapes
    )
    test_a_mismatch_leaves_the_group_usable = Failures.test_a_mismatch_leaves_the_group_usable
    test_another_number_of_calls = Failures.test_another_number_of_calls_is_found_at_the_end
    test_a_failed_rank_ends_every_wait = Failures.test_a_failed_rank_ends_every_wait


class TestRemoteCalls:
    """Without a place named where workers meet, MPI tells them."""

    @pytest.mark.parametrize("given", [False, True])
    def test_workers_meet_through_mpi(self, ranks, given):
        def body(group):
            place = {"rank": group.rank, "world_size": group.size} if given else {}
            me = context.current()
            before = me.rank, me.world_size, me.local_rank, me.local_world_size
            rpc.init_rpc(f"worker{group.rank}", **place)
            try:
                return rpc.rpc_sync(f"worker{(group.rank + 1) % group.size}", pow, (group.rank, 2))
            finally:
                rpc.shutdown()
                me.rank, me.world_size, me.local_rank, me.local_world_size = before

        assert ranks.run(4, body) == [0, 1, 4, 9]

    def test_a_part_of_them_needs_a_place(self, ranks):
        def body(group):
            if group.rank < 2:
                rpc.init_rpc(f"worker{group.rank}", rank=group.rank, world_size=2)

        for outcome in ranks.outcomes(2, body):
            assert "MASTER_PORT" in outcome.cause()
