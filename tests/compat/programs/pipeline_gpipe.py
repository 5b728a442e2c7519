"""In the style of the tutorial on pipeline parallelism: a transformer whose stages are made by hand,
by deleting what they do not have, or by a tracer."""

import os
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, SplitPoint, pipeline


@dataclass
class ModelArgs:
    dim: int = 32
    n_layers: int = 4
    n_heads: int = 4
    vocab_size: int = 50


class Transformer(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.tok_embeddings = nn.Embedding(args.vocab_size, args.dim)
        self.layers = nn.ModuleDict()
        for i in range(args.n_layers):
            self.layers[str(i)] = nn.TransformerDecoderLayer(args.dim, args.n_heads, dropout=0.0)
        self.norm = nn.LayerNorm(args.dim)
        self.output = nn.Linear(args.dim, args.vocab_size)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens) if self.tok_embeddings else tokens
        for layer in self.layers.values():
            h = layer(h, h)
        h = self.norm(h) if self.norm else h
        return self.output(h).clone() if self.output else h


def init_distributed():
    global rank, device, pp_group, stage_index, num_stages
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{rank}") if torch.cuda.is_available() else torch.device("cpu")
    dist.init_process_group()
    pp_group = dist.new_group()
    stage_index = rank
    num_stages = int(os.environ["WORLD_SIZE"])


def manual_model_split(model):
    if stage_index == 0:
        for i in range(2, 4):
            del model.layers[str(i)]
        model.norm = None
        model.output = None
    elif stage_index == 1:
        for i in range(2):
            del model.layers[str(i)]
        model.tok_embeddings = None
    return PipelineStage(model, stage_index, num_stages, device)


def tracer_model_split(model, example_input_microbatch):
    return pipeline(
        module=model,
        mb_args=(example_input_microbatch,),
        split_spec={"layers.2": SplitPoint.BEGINNING},
    )


if __name__ == "__main__":
    init_distributed()
    num_microbatches = 4
    args = ModelArgs()
    torch.manual_seed(0)
    reference = Transformer(args)
    torch.manual_seed(0)
    model = Transformer(args)
    x = torch.ones(32, 20, dtype=torch.long)
    y = torch.randint(0, args.vocab_size, (32, 20), dtype=torch.long)
    dist.broadcast(y, 0)

    if "tracer" in sys.argv:
        example = x.chunk(num_microbatches)[0]
        pipe = tracer_model_split(model, example)
        stage = pipe.build_stage(stage_index, device=device)
        model = stage.submod
    else:
        stage = manual_model_split(model)
    model.to(device)
    x, y = x.to(device), y.to(device)

    def tokenwise_loss_fn(outputs, targets):
        loss_fn = nn.CrossEntropyLoss()
        return loss_fn(outputs.reshape(-1, args.vocab_size), targets.reshape(-1))

    schedule = ScheduleGPipe(stage, n_microbatches=num_microbatches, loss_fn=tokenwise_loss_fn)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        elif rank == 1:
            losses = []
            output = schedule.step(target=y, losses=losses)
        optimizer.step()
    if rank == 1:
        print(f"losses: {len(losses)}, output {tuple(output.shape)}", flush=True)

    other = torch.optim.Adam(reference.parameters(), lr=1e-3)
    for _ in range(2):
        other.zero_grad()
        for px, py in zip(x.chunk(num_microbatches), y.chunk(num_microbatches), strict=True):
            (tokenwise_loss_fn(reference(px), py) / num_microbatches).backward()
        other.step()
    expected = dict(reference.named_parameters())
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.detach(), expected[name].detach(), rtol=1e-3, atol=1e-4)
    print(f"stage {stage_index} ok", flush=True)
    dist.destroy_process_group()
