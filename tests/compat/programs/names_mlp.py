"""A character-level name model: embeddings into an MLP, or a GRU from Linear cells.

A loader whose worker process draws samples with replacement feeds AdamW.
"""

import argparse
import os
import random

import torch
import torch.nn as nn
from torch.nn import functional as F
from torch.utils.data import Dataset
from torch.utils.data.dataloader import DataLoader

SYLLABLES = "an be el ia mar ri lo ka vi sa ne to dor lin my na jo ce".split()


def make_names(count, seed):
    rng = random.Random(seed)
    return ["".join(rng.choice(SYLLABLES) for _ in range(rng.randint(1, 3))) for _ in range(count)]


class NameDataset(Dataset):
    def __init__(self, words, chars, longest):
        self.words, self.longest = words, longest
        self.stoi = {ch: i + 1 for i, ch in enumerate(chars)}
        self.itos = {i: s for s, i in self.stoi.items()}

    def __len__(self):
        return len(self.words)

    def encode(self, word):
        return torch.tensor([self.stoi[w] for w in word], dtype=torch.long)

    def __getitem__(self, idx):
        ix = self.encode(self.words[idx])
        x = torch.zeros(self.longest + 1, dtype=torch.long)
        y = torch.zeros(self.longest + 1, dtype=torch.long)
        x[1 : 1 + len(ix)] = ix
        y[: len(ix)] = ix
        y[len(ix) + 1 :] = -1
        return x, y


class MLP(nn.Module):
    def __init__(self, vocab, block, n_embd=16, n_hidden=64):
        super().__init__()
        self.block = block
        self.wte = nn.Embedding(vocab + 1, n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(block * n_embd, n_hidden), nn.Tanh(), nn.Linear(n_hidden, vocab)
        )
        self.vocab = vocab

    def forward(self, idx, targets=None):
        embs = []
        for _ in range(self.block):
            embs.append(self.wte(idx))
            idx = torch.roll(idx, 1, 1)
            idx[:, 0] = self.vocab
        logits = self.mlp(torch.cat(embs, -1))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(
                logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
            )
        return logits, loss


class GRUCell(nn.Module):
    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.to_z = nn.Linear(n_in + n_hidden, n_hidden)
        self.to_r = nn.Linear(n_in + n_hidden, n_hidden)
        self.to_hbar = nn.Linear(n_in + n_hidden, n_hidden)

    def forward(self, xt, hprev):
        xh = torch.cat([xt, hprev], dim=1)
        r = F.sigmoid(self.to_r(xh))
        hbar = F.tanh(self.to_hbar(torch.cat([xt, r * hprev], dim=1)))
        z = self.to_z(xh).sigmoid()
        return (1 - z) * hprev + z * hbar


class GRU(nn.Module):
    def __init__(self, vocab, block, n_embd=24, n_hidden=48):
        super().__init__()
        self.start = nn.Parameter(torch.zeros(1, n_hidden))
        self.wte = nn.Embedding(vocab, n_embd)
        self.cell = GRUCell(n_embd, n_hidden)
        self.lm_head = nn.Linear(n_hidden, vocab)
        self.block = block

    def forward(self, idx, targets=None):
        b, t = idx.size()
        emb = self.wte(idx)
        h = self.start.expand((b, -1))
        hiddens = []
        for i in range(t):
            h = self.cell(emb[:, i, :], h)
            hiddens.append(h)
        logits = self.lm_head(torch.stack(hiddens, 1))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(
                logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
            )
        return logits, loss


class EndlessLoader:
    def __init__(self, dataset, **kwargs):
        sampler = torch.utils.data.RandomSampler(
            dataset, replacement=True, num_samples=int(1e10)
        )
        self.loader = DataLoader(dataset, sampler=sampler, **kwargs)
        self.it = iter(self.loader)

    def next(self):
        try:
            return next(self.it)
        except StopIteration:
            self.it = iter(self.loader)
            return next(self.it)


@torch.inference_mode()
def evaluate(model, dataset, batch_size=50, max_batches=None):
    model.eval()
    loader = DataLoader(dataset, shuffle=True, batch_size=batch_size, num_workers=0)
    losses = []
    for i, batch in enumerate(loader):
        x, y = [t.to("cpu") for t in batch]
        _, loss = model(x, y)
        losses.append(loss.item())
        if max_batches is not None and i >= max_batches:
            break
    mean = torch.tensor(losses).mean().item()
    model.train()
    return mean


@torch.no_grad()
def generate(model, idx, steps, temperature=1.0, top_k=None):
    for _ in range(steps):
        logits, _ = model(idx)
        logits = logits[:, -1, :] / temperature
        if top_k is not None:
            v, _ = torch.topk(logits, top_k)
            logits[logits < v[:, [-1]]] = -float("Inf")
        probs = F.softmax(logits, dim=-1)
        idx = torch.cat((idx, torch.multinomial(probs, num_samples=1)), dim=1)
    return idx


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--type", default="mlp", choices=["mlp", "gru"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--work-dir", default="o")
    args = parser.parse_args()
    torch.manual_seed(3407)
    torch.cuda.manual_seed_all(3407)
    os.makedirs(args.work_dir, exist_ok=True)
    words = make_names(1000, 1)
    longest = max(len(w) for w in words)
    chars = sorted(set("".join(words)))
    perm = torch.randperm(len(words)).tolist()
    train = NameDataset([words[i] for i in perm[:900]], chars, longest)
    test = NameDataset([words[i] for i in perm[900:]], chars, longest)
    vocab = len(chars) + 1
    model = MLP(vocab, 3) if args.type == "mlp" else GRU(vocab, longest + 1)
    print(f"model #params: {sum(p.numel() for p in model.parameters())}")
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=5e-3, weight_decay=0.01, betas=(0.9, 0.99), eps=1e-8
    )
    loader = EndlessLoader(train, batch_size=32, pin_memory=True, num_workers=1)
    best = None
    path = os.path.join(args.work_dir, "model.pt")
    for step in range(1, args.steps + 1):
        x, y = loader.next()
        _, loss = model(x, y)
        model.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            a = evaluate(model, train, 100, 10)
            b = evaluate(model, test, 100, 10)
            print(f"step {step} train loss: {a} test loss: {b}")
            if best is None or b < best:
                print(f"test loss {b} is the best so far, saving model to {path}")
                torch.save(model.state_dict(), path)
                best = b
    model.load_state_dict(torch.load(path))
    idx = generate(model, torch.zeros(5, 1, dtype=torch.long), longest, top_k=5)
    for row in idx[:, 1:].tolist():
        end = row.index(0) if 0 in row else len(row)
        print("sample:", "".join(train.itos[i] for i in row[:end]))


if __name__ == "__main__":
    main()
