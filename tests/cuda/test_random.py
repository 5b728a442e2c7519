"""``dt.cuda``'s random numbers on the device double."""

import disttrain as dt
from disttrain import cuda


def test_random_numbers(double):
    dt.manual_seed(3)
    assert cuda.initial_seed() == 3 and len(cuda.default_generators) == 2
    states = cuda.get_rng_state_all()
    want = [dt.rand(2, device=d).tolist() for d in ("cuda:0", "cuda:1")]
    cuda.set_rng_state_all(states)
    assert [dt.rand(2, device=d).tolist() for d in ("cuda:0", "cuda:1")] == want
    cuda.manual_seed(5)
    assert cuda.initial_seed() == 5 and cuda.default_generators[1].initial_seed() == 3
    cuda.manual_seed_all(6)
    assert [g.initial_seed() for g in cuda.default_generators] == [6, 6]
    cuda.set_rng_state(states[0], device=1)
    assert cuda.default_generators[1].get_offset() == 0
    cuda.seed(), cuda.seed_all()
    assert cuda.initial_seed() == cuda.default_generators[1].initial_seed()
