"""The same by attention to neighbours (Velickovic and others 2018), as sparse versions of it are
written: a custom function multiplies a matrix that is made anew in each step, and has the
gradient of its values."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class SpecialSpmmFunction(torch.autograd.Function):
    """Special function for only sparse region backpropataion layer."""

    @staticmethod
    def forward(ctx, indices, values, shape, b):
        assert not indices.requires_grad
        a = torch.sparse_coo_tensor(indices, values, shape)
        ctx.save_for_backward(a, b)
        ctx.N = shape[0]
        return torch.matmul(a, b)

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        grad_values = grad_b = None
        if ctx.needs_input_grad[1]:
            grad_a_dense = grad_output.matmul(b.t())
            edge_idx = a._indices()[0, :] * ctx.N + a._indices()[1, :]
            grad_values = grad_a_dense.view(-1)[edge_idx]
        if ctx.needs_input_grad[3]:
            grad_b = a.t().matmul(grad_output)
        return None, grad_values, None, grad_b


class SpecialSpmm(nn.Module):
    def forward(self, indices, values, shape, b):
        return SpecialSpmmFunction.apply(indices, values, shape, b)


class SpGraphAttentionLayer(nn.Module):
    def __init__(self, in_features, out_features, dropout, alpha, concat=True):
        super().__init__()
        self.out_features = out_features
        self.concat = concat
        self.W = nn.Parameter(torch.zeros(size=(in_features, out_features)))
        self.a = nn.Parameter(torch.zeros(size=(1, 2 * out_features)))
        for p in (self.W, self.a):
            p.data.copy_(torch.arange(p.numel()).float().mul(1.3).cos().mul(0.3).view_as(p))
        self.dropout = nn.Dropout(dropout)
        self.leakyrelu = nn.LeakyReLU(alpha)
        self.special_spmm = SpecialSpmm()

    def forward(self, input, adj):
        dv = "cuda" if input.is_cuda else "cpu"
        N = input.size()[0]
        edge = adj.nonzero().t()
        h = torch.mm(input, self.W)
        assert not torch.isnan(h).any()
        edge_h = torch.cat((h[edge[0, :], :], h[edge[1, :], :]), dim=1).t()
        edge_e = torch.exp(-self.leakyrelu(self.a.mm(edge_h).squeeze()))
        assert not torch.isnan(edge_e).any()
        ones = torch.ones(size=(N, 1), device=dv)
        e_rowsum = self.special_spmm(edge, edge_e, torch.Size([N, N]), ones)
        edge_e = self.dropout(edge_e)
        h_prime = self.special_spmm(edge, edge_e, torch.Size([N, N]), h)
        assert not torch.isnan(h_prime).any()
        h_prime = h_prime.div(e_rowsum)
        return F.elu(h_prime) if self.concat else h_prime


class SpGAT(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout, alpha, nheads):
        super().__init__()
        self.attentions = [
            SpGraphAttentionLayer(nfeat, nhid, dropout, alpha) for _ in range(nheads)
        ]
        for i, attention in enumerate(self.attentions):
            self.add_module(f"attention_{i}", attention)
        self.out_att = SpGraphAttentionLayer(nhid * nheads, nclass, dropout, alpha, False)

    def forward(self, x, adj):
        x = torch.cat([att(x, adj) for att in self.attentions], dim=1)
        return F.log_softmax(F.elu(self.out_att(x, adj)), dim=1)


class SoftmaxAttention(nn.Module):
    """Attention by ``torch.sparse.softmax`` over the edges."""

    def __init__(self, nfeat, nclass):
        super().__init__()
        self.key, self.value = nn.Linear(nfeat, 4), nn.Linear(nfeat, nclass)
        for i, p in enumerate(self.parameters()):
            p.data.copy_(torch.arange(p.numel()).float().add(i).sin().mul(0.4).view_as(p))

    def forward(self, x, edges):
        k = self.key(x)
        scores = (k[edges[0]] * k[edges[1]]).sum(-1)
        matrix = torch.sparse_coo_tensor(edges, scores, (len(x), len(x)))
        weights = torch.sparse.softmax(matrix, dim=1)
        return torch.sparse.mm(weights, self.value(x))


rng = np.random.RandomState(1)
nodes, nclass = 40, 3
labels = rng.randint(0, nclass, nodes)
near = rng.rand(nodes, nodes) < np.where(labels[:, None] == labels[None], 0.25, 0.03)
adj = torch.from_numpy(np.maximum(np.maximum(near, near.T), np.eye(nodes) > 0).astype("f4"))
features = torch.from_numpy((rng.rand(nodes, 8) + np.eye(8)[labels]).astype("f4"))
labels = torch.from_numpy(labels)
model = SpGAT(features.shape[1], 5, nclass, dropout=0.0, alpha=0.2, nheads=2)
optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(15):
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss = F.nll_loss(output, labels)
    loss.backward()
    optimizer.step()
    print("attention", epoch, f"loss: {loss.item():.5f}")
model = SoftmaxAttention(features.shape[1], nclass)
optimizer = optim.SGD(model.parameters(), lr=0.3)
edges = adj.nonzero().t()
for epoch in range(15):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(features, edges), labels)
    loss.backward()
    optimizer.step()
    print("softmax", epoch, f"loss: {loss.item():.5f}")
