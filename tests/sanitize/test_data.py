"""What is trained on: orders that do not change, and targets that are written to."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.data import DataLoader, DistributedSampler, TensorDataset
from disttrain.nn import functional as F
from support.sanitized import Net, batch, kinds


@pytest.mark.parametrize(
    "shuffle, sets, trains, found",
    [
        (True, False, True, {"missing-set-epoch"}),
        (True, True, True, set()),
        (False, False, True, set()),
        (True, False, False, set()),  # an evaluation
    ],
)
def test_set_epoch(shuffle, sets, trains, found):
    def body():
        model = Net().train(trains)
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        data = TensorDataset(*batch(32))
        sampler = DistributedSampler(data, 2, 0, shuffle=shuffle)
        loader = DataLoader(data, batch_size=8, sampler=sampler)
        for epoch in range(3):
            if sets:
                sampler.set_epoch(epoch)
            for x, y in loader:
                if not trains:
                    with dt.no_grad():
                        model(x)
                    continue
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()

    assert kinds(body) == found


def test_a_batch_that_is_looked_at_before_and_an_epoch_that_is_chosen_again():
    def body():
        model = Net()
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        data = TensorDataset(*batch(32))
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, 2, 0))
        for epoch in (0, 1, 1):
            next(iter(loader))
            loader.sampler.set_epoch(epoch)
            next(iter(loader))
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()

    assert kinds(body) == set()


class Noisy(nn.Module):
    """An autoencoder that may write to what it is given."""

    def __init__(self, writes: bool) -> None:
        super().__init__()
        self.layer, self.writes = nn.Linear(4, 4), writes

    def forward(self, x):
        x = x.mul_(dt.rand(4)) if self.writes else x * dt.rand(4)
        return self.layer(x)


@pytest.mark.parametrize("writes, clones", [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("loads", [True, False])
def test_a_target_that_the_model_writes_to(writes, clones, loads):
    def body():
        model = Noisy(writes)
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        data = dt.randn(32, 4)
        batches = DataLoader(TensorDataset(data), batch_size=8) if loads else data.split(8)
        for x in batches:
            x = x[0] if loads else x
            target = x.clone() if clones else x
            optimizer.zero_grad()
            F.mse_loss(model(x), target).backward()
            optimizer.step()

    assert kinds(body) == ({"label-leakage"} if writes and not clones else set())


def test_columns_of_one_table():
    def body():
        model = Noisy(True)
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        for rows in dt.randn(32, 8).split(8):
            optimizer.zero_grad()
            F.mse_loss(model(rows[:, :4]), rows[:, 4:]).backward()
            optimizer.step()

    assert kinds(body) == set()


@pytest.mark.parametrize("how", ["overwritten", "ignored", "normalised", "view"])
def test_writes_to_labels_of_a_batch(how):
    def body():
        model = nn.Linear(4, 3)
        loss = nn.CrossEntropyLoss()
        optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
        for x, y in DataLoader(TensorDataset(*batch(32)), batch_size=8):
            if how == "normalised":
                x.div_(2.0)
            out = model(x)
            if how == "overwritten":
                y.copy_((out.argmax(1) + y) % 3)
            elif how == "ignored":
                y[:2] = -100
            optimizer.zero_grad()
            loss(out, y.view(-1) if how == "view" else y).backward()
            optimizer.step()

    assert kinds(body) == ({"label-leakage"} if how == "overwritten" else set())
