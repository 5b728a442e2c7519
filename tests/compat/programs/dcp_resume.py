"""A sharded model and its optimizer, saved and resumed through torch.distributed.checkpoint."""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard


class App(Stateful):
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer}

    def load_state_dict(self, state_dict):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optim"],
        )


def build(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 33), nn.ReLU(), nn.Linear(33, 8))
    fully_shard(model)
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def train(model, optimizer, steps):
    for step in range(steps):
        torch.manual_seed(100 + step)
        optimizer.zero_grad()
        loss = model(torch.rand(8, 16)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    model, optimizer = build(0)
    train(model, optimizer, 2)
    dcp.save({"app": App(model, optimizer), "epoch": 3}, checkpoint_id="sync")
    future = dcp.async_save({"app": App(model, optimizer)}, checkpoint_id="async")
    expected = train(model, optimizer, 2)
    future.result()

    for name in ("sync", "async"):
        again, other = build(1)
        state = {"app": App(again, other)}
        if name == "sync":
            state["epoch"] = 0
        dcp.load(state, checkpoint_id=name)
        print(name, "resumed alike:", train(again, other, 2) == expected, state.get("epoch"))

    try:
        dcp.load({"app": {"model": {"0.weight": torch.zeros(2, 2)}}}, checkpoint_id="sync")
    except dcp.api.CheckpointException as error:
        print("refused:", "Size mismatch" in str(error))
    if dist.get_rank() == 0:
        dcp_to_torch_save("sync", "whole.pt")
        print("whole:", torch.load("whole.pt")["app"]["model"]["0.weight"].shape)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
