"""Graphs on the device double: what is recorded is done again, on the same memory."""

import pytest
from standins.device_double.graphs import NotWhileRecording

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import cuda, nn
from disttrain.errors import DeviceError


def test_a_replay_computes_anew(double):
    x, seen = dt.arange(4.0, device="cuda"), dt.zeros(4, device="cuda")
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        assert cuda.is_current_stream_capturing()
        y = (x * 2).exp() + x[1:3].sum()
        seen += y
    assert not cuda.is_current_stream_capturing() and seen.tolist() == [0.0] * 4
    for k in range(3):
        x.copy_(dt.full((4,), float(k)).cuda())
        double.counts.clear()
        g.replay()
        want = (dt.full((4,), 2.0 * k)).exp() + 2 * k
        assert not double.counts.waits and dt.allclose(y.cpu(), want)
    assert seen.cpu().sum() > 0
    g.reset()
    with pytest.raises(DeviceError, match="before a preceding successful capture"):
        g.replay()


def test_a_training_step(double):
    def steps(replayed):
        dt.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to("cuda")
        optimizer = dt.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x, y = dt.randn(6, 4, device="cuda"), dt.randn(6, 2, device="cuda")

        def step():
            optimizer.zero_grad(set_to_none=False)
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        step()  # gradients and momenta are there
        if replayed:
            g = cuda.CUDAGraph()
            with cuda.graph(g):
                loss = step()
        losses = []
        for k in range(4):
            x.copy_(dt.full((6, 4), 0.1 * k).cuda())
            if replayed:
                g.replay()
            else:
                loss = step()
            losses.append(loss.item())
        return losses

    assert steps(True) == steps(False)


def test_random_numbers_go_on(double):
    dt.manual_seed(3)
    x = dt.ones(64, device="cuda")
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        noise, kept = dt.randn(8, device="cuda"), F.dropout(x, 0.5)
    seen = []
    for _ in range(2):
        g.replay()
        seen.append((noise.tolist(), kept.tolist()))
    assert seen[0] != seen[1] and cuda.default_generators[0].get_offset() == 16
    dt.manual_seed(3)
    want = [(dt.randn(8, device="cuda").tolist(), F.dropout(x, 0.5).tolist()) for _ in range(2)]
    assert seen == want
    dt.manual_seed(3)
    g.replay()
    assert noise.tolist() == want[0][0]


def test_generators_of_the_programs_own(double):
    own = dt.Generator("cuda").manual_seed(5)
    with pytest.raises(DeviceError, match="register_generator_state"):
        with cuda.graph(cuda.CUDAGraph()):
            dt.rand(2, device="cuda", generator=own)
    g = cuda.CUDAGraph()
    g.register_generator_state(own)
    with cuda.graph(g):
        y = dt.rand(2, device="cuda", generator=own)
    g.replay()
    assert y.tolist() == dt.rand(2, device="cuda", generator=own.manual_seed(5)).tolist()


def test_what_cannot_be_recorded(double, tmp_path):
    x = dt.ones(2, device="cuda")
    with pytest.raises(NotWhileRecording, match="download"):
        with cuda.graph(cuda.CUDAGraph()):
            x.sum().item()
    assert cuda.current_stream() == cuda.default_stream()
    with pytest.raises(DeviceError, match="non-default stream"):
        cuda.CUDAGraph().capture_begin()
    g = cuda.CUDAGraph()
    with cuda.graph(g, pool=cuda.graph_pool_handle()):
        x + 1
    with pytest.raises(DeviceError, match="captured already"):
        with cuda.graph(g):
            pass
    other = cuda.CUDAGraph()
    with cuda.graph(other, pool=g.pool()):
        x + 2
    other.debug_dump(tmp_path / "g.dot")
    assert (tmp_path / "g.dot").read_text().startswith("digraph")
