"""state_dict and load_state_dict."""

from collections import OrderedDict

import numpy as np
import pytest

from disttrain import core, nn
from disttrain.errors import StateDictError


def tensor(*shape, value=1.0):
    return core.wrap(np.full(shape, value, np.float32))


class Leaf(nn.Module):
    def __init__(self, size=3):
        super().__init__()
        self.weight = nn.Parameter(tensor(size))
        self.register_buffer("seen", tensor(1))
        self.register_buffer("scratch", tensor(1), persistent=False)


class Net(nn.Module):
    def __init__(self, size=3):
        super().__init__()
        self.a = Leaf(size)
        self.b = Leaf(2)


def test_names_order_and_sharing():
    net = Net()
    state = net.state_dict()
    assert isinstance(state, OrderedDict)
    assert list(state) == ["a.weight", "a.seen", "b.weight", "b.seen"]
    assert np.shares_memory(state["a.weight"].numpy(), net.a.weight.detach().numpy())
    assert not state["a.weight"].requires_grad
    assert net.state_dict(keep_vars=True)["a.weight"] is net.a.weight
    assert list(net.a.state_dict(prefix="x.")) == ["x.weight", "x.seen"]
    given = OrderedDict()
    assert net.a.state_dict(destination=given, prefix="y.") is given and "y.seen" in given


def test_round_trip_copies_into_the_same_parameters():
    net, other = Net(), Net()
    other.a.weight.data.fill_(7.0)
    kept = net.a.weight
    result = net.load_state_dict(other.state_dict())
    assert net.a.weight is kept and kept.tolist() == [7.0] * 3
    assert not np.shares_memory(kept.detach().numpy(), other.a.weight.detach().numpy())
    assert repr(result) == "<All keys matched successfully>"
    assert result.missing_keys == [] and result.unexpected_keys == []


def test_copying_converts_the_element_type():
    net = Net()
    state = {k: v.to(core.dtypes.float64) for k, v in net.state_dict().items()}
    net.load_state_dict(state)
    assert net.a.weight.dtype is core.dtypes.float32


def test_error_lists_everything_in_pytorchs_words():
    state = Net().state_dict()
    del state["a.seen"]
    state["c.weight"] = tensor(1)
    state["b.other"] = tensor(1)
    state["a.weight"] = tensor(4)
    with pytest.raises(StateDictError) as caught:
        Net().load_state_dict(state)
    text = str(caught.value)
    assert text.startswith("Error(s) in loading state_dict for Net:\n\t")
    assert 'Unexpected key(s) in state_dict: "c.weight", "b.other". ' in text
    assert 'Missing key(s) in state_dict: "a.seen". ' in text
    assert (
        f"size mismatch for a.weight: copying a param with shape {tensor(4).shape} from "
        f"checkpoint, the shape in current model is {tensor(3).shape}."
    ) in text
    assert isinstance(caught.value, RuntimeError)


def test_not_strict_reports_but_loads():
    net = Net()
    state = {"a.weight": tensor(3, value=5.0), "zzz": tensor(1)}
    result = net.load_state_dict(state, strict=False)
    assert net.a.weight.tolist() == [5.0] * 3
    assert result.missing_keys == ["a.seen", "b.weight", "b.seen"]
    assert result.unexpected_keys == ["zzz"]
    with pytest.raises(StateDictError, match="size mismatch"):
        net.load_state_dict({"a.weight": tensor(9)}, strict=False)


def test_what_is_no_tensor_is_refused():
    with pytest.raises(StateDictError, match="expected a Tensor from checkpoint"):
        Net().load_state_dict({"a.weight": [1.0, 2.0, 3.0]}, strict=False)
    with pytest.raises(TypeError, match="to be dict-like"):
        Net().load_state_dict([1])


def test_assign_takes_the_tensors():
    with core.device("meta"):
        net = nn.Linear(2, 2)
    net.bias.requires_grad_(False)
    state = {"weight": tensor(2, 2), "bias": tensor(2)}
    with pytest.raises(StateDictError, match="meta device"):
        net.load_state_dict(state)
    net.load_state_dict(state, assign=True)
    assert isinstance(net.weight, nn.Parameter) and net.weight.requires_grad
    assert not net.bias.requires_grad
    assert np.shares_memory(net.weight.detach().numpy(), state["weight"].numpy())


def test_extra_state():
    class Counter(Leaf):
        count = 3

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    one, two = Counter(), Counter()
    one.count = 8
    state = one.state_dict()
    assert state["_extra_state"] == {"count": 8}
    two.load_state_dict(state)
    assert two.count == 8
    del state["_extra_state"]
    with pytest.raises(StateDictError, match="_extra_state"):
        two.load_state_dict(state)
    with pytest.raises(StateDictError, match="Unexpected"):
        Leaf().load_state_dict(one.state_dict())


def test_hooks_around_saving_and_loading():
    net, seen = Net(), []
    net.a.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(prefix))

    def forget(module, state_dict, prefix, metadata):
        del state_dict["b.seen"]

    net.register_state_dict_post_hook(forget)
    state = net.state_dict()
    assert seen == ["a."] and "b.seen" not in state

    def rename(module, state_dict, prefix, *rest):
        state_dict[prefix + "weight"] = state_dict.pop(prefix + "old")

    net.b.register_load_state_dict_pre_hook(rename)
    state["b.old"] = state.pop("b.weight")

    def forgive(module, keys):
        keys.missing_keys.clear()
        keys.unexpected_keys.clear()

    net.register_load_state_dict_post_hook(forgive)
    net.load_state_dict(state)
    assert state["b.old"] is not None


def test_a_post_hook_that_returns_something_is_refused():
    net = Net()
    net.register_state_dict_post_hook(lambda m, s, prefix, meta: s)
    with pytest.raises(RuntimeError, match="state_dict post-hook must return None"):
        net.state_dict()


def test_positional_arguments_of_state_dict_are_discouraged():
    with pytest.warns(FutureWarning, match="Positional args are being deprecated"):
        state = Net().state_dict({}, "net.")
    assert all(key.startswith("net.") for key in state)


def test_version_travels_as_metadata():
    assert Net().state_dict()._metadata["a"] == {"version": 1}
    assert nn.BatchNorm1d(2).state_dict()._metadata[""] == {"version": 2}


def test_old_one_element_entries_become_scalars():
    net = nn.BatchNorm1d(2)
    state = net.state_dict()
    state["num_batches_tracked"] = core.wrap(np.array([4]))
    net.load_state_dict(state)
    assert net.num_batches_tracked.item() == 4


def test_a_plain_dict_may_lack_the_counter_of_batches():
    """Files of early versions name no version, and have none."""
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    state = model.state_dict()
    plain = {k: v + 1 for k, v in state.items() if not k.endswith("num_batches_tracked")}
    model.load_state_dict(plain)
    assert model[1].num_batches_tracked.item() == 0 and model[1].weight.tolist() == [2.0, 2.0]
    assert "1.num_batches_tracked" not in plain
    del state["1.num_batches_tracked"]
    with pytest.raises(StateDictError, match="num_batches_tracked"):
        model.load_state_dict(state)
    del plain["1.running_mean"]
    with pytest.raises(StateDictError, match="running_mean"):
        model.load_state_dict(plain)
