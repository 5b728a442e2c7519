"""What operations on devices cannot take is found there, without a wait: by the double at once."""

import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain.errors import ConfigError, DimError


def there(*values, dtype=None):
    return dt.tensor(list(values), dtype=dtype, device="cuda")


CASES = {
    "cross_entropy": lambda: F.cross_entropy(dt.ones(2, 3, device="cuda"), there(0, 3)),
    "half": lambda: F.cross_entropy(dt.ones(2, 3, device="cuda").half(), there(-1, 0)),
    "nll_loss": lambda: F.nll_loss(dt.ones(2, 3, device="cuda"), there(0, 3)),
    "embedding": lambda: F.embedding(there(1, 4), dt.ones(4, 2, device="cuda")),
    "scatter": lambda: dt.zeros(3, device="cuda").scatter(0, there(3), 1.0),
    "index_add": lambda: dt.zeros(3, device="cuda").index_add(0, there(3), there(1.0)),
    "nothing": lambda: dt.zeros(0, device="cuda").scatter_add(0, there(0), there(1.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_places_out_of_range(double, name):
    with pytest.raises(DimError, match="out of range"):
        CASES[name]()


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.bfloat16])
def test_probabilities_and_rates(double, dtype):
    for bad in (-0.5, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="probabilities must lie"):
            dt.bernoulli(there(0.5, bad, dtype=dtype))
    for bad in (-1.0, float("nan")):
        with pytest.raises(ConfigError, match="rates must not be negative"):
            dt.poisson(there(2.0, bad, dtype=dtype))


def test_what_is_allowed_waits_for_nothing(double):
    logits, target = dt.ones(3, 4, device="cuda"), there(0, -100, 3)
    p = there(0.0, 1.0)
    double.counts.clear()
    loss = F.cross_entropy(logits, target)
    coins = dt.bernoulli(p)
    assert not double.counts.waits and not double.counts.transfers
    assert abs(loss.item() - 1.3862944) < 1e-6 and coins.tolist() == [0.0, 1.0]
    assert F.cross_entropy(logits, there(0, 7, 3), ignore_index=7).isfinite().item()
