"""Random numbers on devices: counted, one stream per device and rank; a seed names them."""

import pickle

import pytest

import disttrain as dt
from disttrain import context
from disttrain.core.backward.checkpoint import checkpoint
from disttrain.errors import ConfigError, DeviceError

pytestmark = pytest.mark.usefixtures("double")
CUDA = "cuda:0"


def draw(generator=None, n=5, device=CUDA):
    return dt.rand(n, device=device, generator=generator).tolist()


def test_a_seed_names_the_numbers_of_every_device():
    dt.manual_seed(7)
    first, second = draw(), draw(device="cuda:1")
    assert first == second  # every device counts by itself, from the same seed
    assert draw() != first
    dt.manual_seed(7)
    assert draw() == first and dt.rand(3).device.type == "cpu"
    assert draw(dt.Generator(CUDA).manual_seed(7)) == first
    assert draw(n=1000)[:5] == draw(dt.Generator(CUDA).manual_seed(7).set_offset(4))


def test_states_are_a_seed_and_an_offset():
    g = dt.Generator(CUDA).manual_seed(3)
    draw(g)
    state = g.get_state()
    assert state.dtype is dt.uint8 and state.device.type == "cpu"
    assert state.tolist() == [3, *[0] * 7, 4, *[0] * 7] and g.get_offset() == 4
    want = draw(g)
    twin, again = g.set_state(state).clone_state(), pickle.loads(pickle.dumps(g))
    assert draw(g) == draw(twin) == draw(again) == want
    with pytest.raises(ConfigError, match="16 bytes"):
        g.set_state(dt.get_rng_state())
    with pytest.raises(ConfigError, match="multiple of 4"):
        g.set_offset(3)
    with pytest.raises(DeviceError, match="does not count"):
        dt.Generator().get_offset()


def test_generators_draw_on_their_own_device():
    with pytest.raises(DeviceError, match="Expected a 'cuda:0' device type for generator"):
        draw(dt.Generator())
    with pytest.raises(DeviceError, match="Expected a 'cpu' device type"):
        dt.rand(2, generator=dt.Generator(CUDA))
    with pytest.raises(DeviceError, match="'cuda:1'"):
        dt.ones(2, device="cuda:1").normal_(generator=dt.Generator(CUDA))


def test_every_rank_has_its_own():
    dt.manual_seed(1)
    want = draw()
    dt.manual_seed(1)
    with context.attach(context.Rank(rank=1)):
        dt.manual_seed(2)
        draw()
    assert draw() == want


def test_fork_rng_puts_devices_back():
    dt.manual_seed(5)
    draw()
    with dt.fork_rng(devices=[0]):
        want, other = draw(), draw(device="cuda:1")
    assert draw() == want
    assert draw(device="cuda:1") != other
    dt.manual_seed(6)
    with dt.fork_rng():
        want = [draw(), draw(device="cuda:1")]  # devices that were not used before, too
    assert [draw(), draw(device="cuda:1")] == want


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("used", [False, True])
def test_a_checkpoint_draws_the_same_again(reentrant, used):
    with context.attach(context.Rank()):
        dt.manual_seed(9)
        if used:
            draw()
        x = dt.ones(64, device=CUDA, requires_grad=True)
        y = checkpoint(lambda t: dt.dropout(t, 0.5) * 3, x, use_reentrant=reentrant)
        draw()
        y.backward(dt.ones_like(y))
        assert x.grad.tolist() == y.tolist()


@pytest.mark.parametrize("chunks", [None, 2])
def test_vmap(chunks):
    def noise(t):
        return t + dt.rand(3, device=CUDA)

    x = dt.zeros(4, 3, device=CUDA)
    same = dt.func.vmap(noise, randomness="same", chunk_size=chunks)(x).tolist()
    assert same[0] == same[1] == same[2] == same[3]
    other = dt.func.vmap(noise, randomness="different", chunk_size=chunks)(x).tolist()
    assert len({tuple(row) for row in other}) == 4
    kept = dt.func.vmap(lambda t: dt.dropout(t, 0.5), randomness="same", chunk_size=chunks)
    rows = kept(dt.ones(4, 32, device=CUDA)).tolist()
    assert rows[0] == rows[1] == rows[2] == rows[3]


def test_all_that_is_drawn():
    dt.manual_seed(2)
    n = 4000
    normal = dt.randn(n, device=CUDA)
    host = normal.cpu()
    assert abs(host.mean().item()) < 0.06 and abs(host.std().item() - 1) < 0.05
    assert dt.randn(4, device=CUDA, dtype=dt.complex64).dtype is dt.complex64
    whole = dt.randint(-2, 3, (n,), device=CUDA).tolist()
    assert set(whole) == {-2, -1, 0, 1, 2}
    assert sorted(dt.randperm(50, device=CUDA).tolist()) == list(range(50))
    assert dt.randperm(5, device=CUDA, dtype=dt.int32).dtype is dt.int32
    kept = dt.dropout(dt.ones(n, device=CUDA), 0.25)
    assert {round(v, 4) for v in kept.tolist()} == {0.0, 1.3333}
    assert abs(kept.mean().item() - 1) < 0.05
    coins = dt.bernoulli(dt.full((n,), 0.2, device=CUDA))
    assert abs(coins.mean().item() - 0.2) < 0.04
    for rate in (0.5, 30.0):
        counts = dt.poisson(dt.full((600,), rate, device=CUDA)).cpu()
        assert abs(counts.mean().item() - rate) < 0.15 * rate + 0.05
        assert abs(counts.var().item() - rate) < 0.3 * rate
    t = dt.empty(n, device=CUDA, dtype=dt.bfloat16)
    assert t.uniform_(2, 4).min().item() >= 2 and t.exponential_(2).min().item() >= 0
    assert set(dt.empty(n, device=CUDA, dtype=dt.uint8).random_(3).tolist()) == {0, 1, 2}
    assert dt.rand_like(normal).device == normal.device
    counts = dt.empty(n, device=CUDA).bernoulli_(0.5).sum().item()
    assert abs(counts / n - 0.5) < 0.05


def test_multinomial():
    dt.manual_seed(4)
    weights = dt.tensor([[1.0, 0, 3], [0, 0, 1]], device=CUDA)
    for n in (1, 2000):
        found = dt.multinomial(weights, n, replacement=True)
        assert found.shape == (2, n) and found.dtype is dt.int64
        first, second = found.tolist()
        assert set(second) == {2} and 1 not in first
    assert abs(first.count(2) / n - 0.75) < 0.05
    row = dt.tensor([1.0, 0, 3], device=CUDA)
    assert sorted(dt.multinomial(row, 2).tolist()) == [0, 2]
    with pytest.raises(ConfigError, match="more than a row has"):
        dt.multinomial(weights, 2)
    with pytest.raises(ConfigError, match="not negative"):
        dt.multinomial(-weights, 1)


def test_coins_of_several_probabilities():
    for where in ("cpu", CUDA):
        p = dt.tensor([0.0, 1.0, 1.0], device=where)
        assert dt.empty(2, 3, device=where).bernoulli_(p).tolist() == [[0.0, 1.0, 1.0]] * 2
