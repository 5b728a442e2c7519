"""Averages of parameters over training."""

import copy

import numpy as np
import pytest

import disttrain as dt
from disttrain.nn.utils import swa


def network():
    dt.manual_seed(0)
    return dt.nn.Sequential(dt.nn.Linear(3, 4), dt.nn.BatchNorm1d(4), dt.nn.Linear(4, 2))


def versions(model, count=4):
    """``count`` copies of ``model`` with other values."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        with dt.no_grad():
            for p in model.parameters():
                p.copy_(dt.tensor(rng.standard_normal(p.shape).astype("f4")))
            model[1].running_mean.add_(1.0)
            model[1].num_batches_tracked.add_(1)
        yield copy.deepcopy(model)


@pytest.mark.parametrize("args", [{}, {"avg_fn": swa.get_swa_avg_fn()},
                                  {"multi_avg_fn": swa.get_swa_multi_avg_fn()}])  # fmt: skip
def test_the_mean_of_all_values(args):
    model = network()
    averaged = swa.AveragedModel(model, **args)
    seen = []
    for version in versions(model):
        averaged.update_parameters(version)
        seen.append([p.detach().numpy() for p in version.parameters()])
    for p, values in zip(averaged.module.parameters(), zip(*seen)):
        np.testing.assert_allclose(p.detach().numpy(), np.mean(values, 0), rtol=1e-5, atol=1e-6)
    assert averaged.n_averaged.item() == 4
    np.testing.assert_allclose(averaged.module[1].running_mean.numpy(), 4.0)  # the last one's
    x = dt.randn(5, 3)
    np.testing.assert_array_equal(averaged(x).detach().numpy(), averaged.module(x).detach().numpy())


@pytest.mark.parametrize("args", [{"avg_fn": swa.get_ema_avg_fn(0.5)},
                                  {"multi_avg_fn": swa.get_ema_multi_avg_fn(0.5)}])  # fmt: skip
def test_an_exponential_average_of_parameters_and_buffers(args):
    model = network()
    averaged = swa.AveragedModel(model, use_buffers=True, **args)
    want = None
    for version in versions(model):
        averaged.update_parameters(version)
        value = version[0].weight.detach().numpy()
        want = value if want is None else 0.5 * want + 0.5 * value
    np.testing.assert_allclose(averaged.module[0].weight.detach().numpy(), want, rtol=1e-5)
    np.testing.assert_allclose(averaged.module[1].running_mean.numpy(), 3.125)


def test_the_state_goes_through_a_state_dict():
    model = network()
    first, second = swa.AveragedModel(model), swa.AveragedModel(model)
    for version in versions(model, 2):
        first.update_parameters(version)
    second.load_state_dict(first.state_dict())
    assert second.n_averaged.item() == 2
    for p, q in zip(first.parameters(), second.parameters()):
        np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())


def test_statistics_are_computed_anew():
    model = network()
    model[1].momentum = 0.3
    model.eval()
    data = [dt.randn(8, 3) for _ in range(3)]
    swa.update_bn([(x, None) for x in data], model)
    assert model[1].momentum == 0.3 and not model.training
    with dt.no_grad():
        means = np.stack([model[0](x).numpy().mean(0) for x in data])
    np.testing.assert_allclose(model[1].running_mean.numpy(), means.mean(0), rtol=1e-4, atol=1e-5)
    assert model[1].num_batches_tracked.item() == 3
    swa.update_bn(data, dt.nn.Linear(3, 1))


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="Invalid decay value"):
        swa.get_ema_avg_fn(1.5)
    with pytest.raises(AssertionError, match="Only one of"):
        swa.AveragedModel(network(), None, swa.get_swa_avg_fn(), swa.get_swa_multi_avg_fn())
