"""How large buckets may become."""

from __future__ import annotations

from disttrain.distributed.ddp.reducer.caps import MIB, NO_LIMIT, BucketCaps


def test_limits_from_what_a_program_says() -> None:
    plain, given = BucketCaps.create(None), BucketCaps.create(0.5)
    each = BucketCaps.create(None, [1, 3])
    assert plain.limits() == [MIB, 25 * MIB] and given.limits() == [MIB // 2]
    assert each.limits() == [MIB, 3 * MIB] and each.bucket_bytes_cap == 3 * MIB
    assert plain.compute_bucket_size_limits(False, False) == ([NO_LIMIT], [])
    assert plain.compute_bucket_size_limits(False, True) == ([MIB, 25 * MIB], [])
    assert each.compute_bucket_size_limits(True, False) == ([MIB, 3 * MIB], [MIB, 3 * MIB])
