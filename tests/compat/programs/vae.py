"""A variational auto-encoder on made-up pictures; the loss of the test set must fall."""

import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F

torch.manual_seed(1)
use_accel = torch.accelerator.is_available()
device = torch.accelerator.current_accelerator() if use_accel else torch.device("cpu")


class Blobs(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        g = torch.Generator()
        g.manual_seed(seed)
        centre = torch.rand(count, 2, generator=g) * 16 + 6
        grid = torch.arange(28).float()
        dy = (grid.view(1, 28, 1) - centre[:, 0].view(-1, 1, 1)).pow(2)
        dx = (grid.view(1, 1, 28) - centre[:, 1].view(-1, 1, 1)).pow(2)
        self.pictures = torch.exp(-(dx + dy) / 20).unsqueeze(1)

    def __len__(self):
        return self.pictures.size(0)

    def __getitem__(self, i):
        return self.pictures[i], 0


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 128)
        self.fc21 = nn.Linear(128, 8)
        self.fc22 = nn.Linear(128, 8)
        self.fc3 = nn.Linear(8, 128)
        self.fc4 = nn.Linear(128, 784)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 784))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x.view(-1, 784), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=2e-3)
train_loader = torch.utils.data.DataLoader(Blobs(1024, 1), batch_size=32, shuffle=True)
test_loader = torch.utils.data.DataLoader(Blobs(128, 2), batch_size=64, shuffle=False)


def train(epoch):
    model.train()
    total = 0
    for data, _ in train_loader:
        data = data.to(device)
        optimizer.zero_grad()
        recon, mu, logvar = model(data)
        loss = loss_function(recon, data, mu, logvar)
        loss.backward()
        total += loss.item()
        optimizer.step()
    print(f"====> Epoch: {epoch} Average loss: {total / len(train_loader.dataset):.4f}")


def test(epoch):
    model.eval()
    total = 0
    with torch.no_grad():
        for i, (data, _) in enumerate(test_loader):
            data = data.to(device)
            recon, mu, logvar = model(data)
            total += loss_function(recon, data, mu, logvar).item()
            if i == 0:
                n = min(data.size(0), 8)
                side = torch.cat([data[:n], recon.view(64, 1, 28, 28)[:n]])
                assert side.cpu().numpy().shape == (16, 1, 28, 28)
    print(f"====> Test set loss: {total / len(test_loader.dataset):.4f}")


if __name__ == "__main__":
    for epoch in range(1, 6):
        train(epoch)
        test(epoch)
    with torch.no_grad():
        sample = model.decode(torch.randn(64, 8).to(device)).cpu()
        print("sample", list(sample.view(64, 1, 28, 28).shape))
