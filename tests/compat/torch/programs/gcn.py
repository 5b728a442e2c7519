"""Classes of documents that cite each other, by two graph convolutions (Kipf and Welling 2017), as
programs for it are written: an adjacency matrix in ``torch.sparse.FloatTensor``, ``torch.spmm``."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.nn.modules.module import Module
from torch.nn.parameter import Parameter


class GraphConvolution(Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.FloatTensor(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        numbers = torch.arange(self.weight.numel()).float().mul(0.7).sin().mul(stdv)
        self.weight.data.copy_(numbers.view_as(self.weight))
        if self.bias is not None:
            self.bias.data.fill_(0.01)

    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        output = torch.spmm(adj, support)
        if self.bias is not None:
            return output + self.bias
        return output


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        x = self.gc2(x, adj)
        return F.log_softmax(x, dim=1)


def numpy_coo_to_torch_sparse_tensor(rows, cols, data, shape):
    indices = torch.from_numpy(np.vstack((rows, cols)).astype(np.int64))
    values = torch.from_numpy(data)
    return torch.sparse.FloatTensor(indices, values, torch.Size(shape))


def load_data(nodes=60, nfeat=12, nclass=4):
    rng = np.random.RandomState(0)
    labels = rng.randint(0, nclass, nodes)
    near = rng.rand(nodes, nodes) < np.where(labels[:, None] == labels[None], 0.2, 0.02)
    adj = np.maximum(near, near.T).astype(np.float32)
    np.fill_diagonal(adj, 1.0)
    adj /= adj.sum(1, keepdims=True)
    rows, cols = adj.nonzero()
    features = rng.rand(nodes, nfeat).astype(np.float32) + np.eye(nfeat, dtype="f4")[labels]
    features /= features.sum(1, keepdims=True)
    adj = numpy_coo_to_torch_sparse_tensor(rows, cols, adj[rows, cols], adj.shape)
    idx = torch.LongTensor(range(40)), torch.LongTensor(range(40, 60))
    return adj, torch.FloatTensor(features), torch.LongTensor(labels), idx


def accuracy(output, labels):
    preds = output.max(1)[1].type_as(labels)
    correct = preds.eq(labels).double()
    return correct.sum() / len(labels)


torch.manual_seed(0)
adj, features, labels, (idx_train, idx_val) = load_data()
model = GCN(features.shape[1], 16, labels.max().item() + 1, dropout=0.0)
optimizer = optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
for epoch in range(30):
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss_train = F.nll_loss(output[idx_train], labels[idx_train])
    loss_train.backward()
    optimizer.step()
    model.eval()
    output = model(features, adj)
    loss_val = F.nll_loss(output[idx_val], labels[idx_val])
    print(
        f"Epoch: {epoch + 1:04d}",
        f"loss_train: {loss_train.item():.6f}",
        f"loss_val: {loss_val.item():.6f}",
        f"acc_val: {accuracy(output[idx_val], labels[idx_val]).item():.4f}",
    )
