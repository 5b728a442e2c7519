"""Quantization means what it means in PyTorch, on drawn cases (ALL_DRAWS=1: ten times as many)."""

from __future__ import annotations

import pytest

from support.draws import share

CASES = {"tensors": 800, "channels": 600, "dynamic_tensors": 400, "faked": 600, "observed": 500,
         "dynamic_linear": 300, "static": 200, "tables": 150, "recurrent": 60, "operations": 300,
         "trained": 20}  # fmt: skip


@pytest.mark.peer
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(CASES))
def test_drawn_cases(name):
    import torch
    from peers.generators.quantizing import CASES as KNOWN
    from peers.generators.quantizing import differences

    import disttrain

    assert set(CASES) == set(KNOWN)
    seeds = [f"{name} {seed}" for seed in share(range(CASES[name]), 10)]
    count = torch.get_num_threads()
    torch.set_num_threads(1)  # small work, for which several wait for each other
    try:
        wrong = [w for seed in seeds for w in differences(name, disttrain, torch, seed)]
    finally:
        torch.set_num_threads(count)
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_a_model_in_training_with_rounding_goes_over():
    """PyTorch's state dict of it loads here, strictly, and the model computes the same."""
    import torch

    import disttrain as dt
    from disttrain import quantize

    def prepared(library, package):
        torch.manual_seed(0)
        nn = library.nn
        model = nn.Sequential(
            package.QuantStub(), nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(),
            nn.Conv2d(4, 3, 2, bias=False), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(27, 5),
            package.DeQuantStub(),
        ).train()  # fmt: skip
        model = package.fuse_modules_qat(model, [["1", "2", "3"], ["4", "5"]])
        model.qconfig = package.get_default_qat_qconfig("onednn")
        return package.prepare_qat(model)

    theirs, ours = prepared(torch, torch.ao.quantization), prepared(dt, quantize)
    step = torch.optim.SGD(theirs.parameters(), 0.05)
    for _ in range(3):
        theirs(torch.randn(8, 2, 6, 6)).square().mean().backward()
        step.step()
    state = {name: dt.tensor(t.detach().numpy()) for name, t in theirs.state_dict().items()}
    ours.load_state_dict(state)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    x = torch.randn(4, 2, 6, 6)
    for package, model in ((torch.ao.quantization, theirs), (quantize, ours)):
        model.eval().apply(package.disable_observer)
    want, found = theirs(x).detach().numpy(), ours(dt.tensor(x.numpy())).detach().numpy()
    assert abs(want - found).max() < 1e-5
