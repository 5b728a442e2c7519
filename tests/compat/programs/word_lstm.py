"""A two-layer LSTM language model: truncated back-propagation, clipping, save, load, generate."""

import math
import random

import torch
import torch.nn as nn

torch.manual_seed(1111)
rng = random.Random(0)
SUBJECTS, VERBS, OBJECTS = "cat dog bird".split(), "sees likes chases".split(), "fish mice".split()
text = []
for _ in range(500):
    text += ["the", rng.choice(SUBJECTS), rng.choice(VERBS), rng.choice(OBJECTS), "<eos>"]
vocab = sorted(set(text))
word2idx = {w: i for i, w in enumerate(vocab)}
corpus = torch.cat([torch.tensor([word2idx[w]]).type(torch.int64) for w in text])


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz)
    return data.view(bsz, -1).t().contiguous()


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, dropout=0.1):
        super().__init__()
        self.ntoken, self.nhid, self.nlayers = ntoken, nhid, nlayers
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.ntoken)
        return nn.functional.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        shape = (self.nlayers, bsz, self.nhid)
        return weight.new_zeros(*shape), weight.new_zeros(*shape)


def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def get_batch(source, i, bptt=10):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


train_data, test_data = batchify(corpus[:2000], 10), batchify(corpus[2000:], 5)
model = RNNModel(len(vocab), 16, 32, 2)
criterion = nn.NLLLoss()
lr = 5.0


def evaluate(source):
    model.eval()
    total, hidden = 0.0, model.init_hidden(5)
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, 10):
            data, targets = get_batch(source, i)
            output, hidden = model(data, hidden)
            hidden = repackage_hidden(hidden)
            total += len(data) * criterion(output, targets).item()
    return total / (len(source) - 1)


for epoch in range(1, 5):
    model.train()
    hidden = model.init_hidden(10)
    for i in range(0, train_data.size(0) - 1, 10):
        data, targets = get_batch(train_data, i)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
    val = evaluate(test_data)
    print(f"| end of epoch {epoch:3d} | valid loss {val:5.2f} | valid ppl {math.exp(val):8.2f}")
with open("model.pt", "wb") as f:
    torch.save(model.state_dict(), f)
with open("model.pt", "rb") as f:
    model.load_state_dict(torch.load(f))
model.rnn.flatten_parameters()
test_loss = evaluate(test_data)
print(f"| End of training | test loss {test_loss:5.2f} | test ppl {math.exp(test_loss):8.2f}")

model.eval()
hidden = model.init_hidden(1)
word = torch.randint(len(vocab), (1, 1), dtype=torch.long)
out = []
with torch.no_grad():
    for i in range(20):
        output, hidden = model(word, hidden)
        weights = output.squeeze().div(1.0).exp().cpu()
        pick = torch.multinomial(weights, 1)[0]
        word.fill_(pick)
        out.append(vocab[pick])
        if i % 10 == 0:
            print(f"| Generated {i}/{20} words")
print(" ".join(out))
