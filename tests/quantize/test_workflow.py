"""Models changed into quantized ones: near in accuracy, smaller, saved and loaded, compiled and
exported with the same bits."""

from __future__ import annotations

import copy
import io
import threading

import pytest

import disttrain as dt
from disttrain import nn, quantize
from disttrain.errors import ConfigError, DTypeError, StateDictError
from disttrain.func import functional_call
from disttrain.quantize import workflow
from support import digits


def size(model):
    return sum(v.nbytes for v in model.state_dict().values())


def calibrated(backend="x86"):
    net = quantize.fuse_modules(digits.trained(), digits.FUSED)
    net.qconfig = quantize.get_default_qconfig(backend)
    prepared = quantize.prepare(net)
    prepared(digits.data()[0][:512])
    return quantize.convert(prepared)


def dynamic():
    return quantize.quantize_dynamic(digits.trained())


def weights_only():
    net = copy.deepcopy(digits.trained())
    quantize.quantize_(net, quantize.Int8WeightOnlyConfig())
    return net


@pytest.mark.parametrize("make", [calibrated, lambda: calibrated("qnnpack"), dynamic, weights_only])
def test_digits_are_read_as_well(make):
    """At most half a point is lost, of all images."""
    assert digits.accuracy(make(), whole=True) > digits.accuracy(digits.trained(), whole=True) - 0.5


def test_models_are_smaller():
    assert size(digits.trained()) > 3.5 * size(calibrated())
    net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    assert size(net) > 3.5 * size(quantize.quantize_dynamic(net))


def test_training_with_rounding():
    net = quantize.fuse_modules_qat(copy.deepcopy(digits.trained()).train(), digits.FUSED)
    net.qconfig = quantize.get_default_qat_qconfig("x86")
    net = quantize.prepare_qat(net)
    digits.train(net, 1, 1e-3)
    net.apply(quantize.disable_observer)
    found = quantize.convert(net)
    known = digits.accuracy(digits.trained(), whole=True)
    assert digits.accuracy(found, whole=True) > known - 0.5
    x = digits.data()[2]
    assert (found(x).argmax(1) == net(x).argmax(1)).float().mean().item() > 0.98
    assert dt.export(net, (x,))(x).equal(net(x))  # rounding is exported, too


@pytest.mark.parametrize("make", [calibrated, dynamic, weights_only])
def test_compiled_and_exported_models_have_the_same_bits(make, tmp_path):
    net, x = make(), digits.data()[2][:20]
    wanted = net(x)
    compiled = dt.compile(net)
    assert compiled(x).equal(wanted) and compiled(x).equal(wanted)
    dt.export(net, (x,), dynamic={"x": {0: "batch"}}).save(tmp_path / "m.dtp")
    program = dt.load_program(tmp_path / "m.dtp")
    assert program(x).equal(wanted) and program(x[:3]).shape == (3, 10)
    assert (tmp_path / "m.dtp").stat().st_size < size(net) + 20_000


def test_states_go_over():
    net, x = calibrated(), digits.data()[2]
    skeleton = quantize.fuse_modules(digits.Net().eval(), digits.FUSED)
    skeleton.qconfig = quantize.get_default_qconfig("x86")
    with pytest.warns(UserWarning, match="must run observer"):
        skeleton = quantize.convert(quantize.prepare(skeleton))
    file = io.BytesIO()
    dt.save(net.state_dict(), file)
    file.seek(0)
    skeleton.load_state_dict(dt.load(file))
    assert skeleton(x).equal(net(x)) and copy.deepcopy(net)(x).equal(net(x))


def test_threads_give_the_same():
    net, x = calibrated(), digits.data()[2]
    wanted, found = net(x), []
    jobs = [threading.Thread(target=lambda: found.append(net(x))) for _ in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert len(found) == 4 and all(one.equal(wanted) for one in found)


def test_who_is_quantized_is_said_by_qconfigs():
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 2))
    found = quantize.quantize_dynamic(net, {"1"})
    names = [type(m).__name__ for m in found.modules()]
    assert names.count("DynamicLinear") == 1 and type(found[0]) is nn.Linear
    assert type(net[1][0]) is nn.Linear  # a copy was changed
    found = quantize.quantize_dynamic(net, {nn.Linear: quantize.per_channel_dynamic_qconfig})
    assert found[0].weight().qscheme() == "per_channel_affine"
    assert quantize.quantize_dynamic(net, inplace=True) is net and not hasattr(net, "qconfig")
    model = quantize.QuantWrapper(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))).eval()
    model.qconfig, model.module[1].qconfig = quantize.get_default_qconfig(), None
    prepared = quantize.prepare(model)
    prepared(dt.randn(8, 4))
    assert type(quantize.convert(prepared).module[1]) is nn.Linear
    assert not hasattr(model.module[0], "activation_post_process")


def test_all_at_once_and_layers_apart():
    net = quantize.QuantWrapper(nn.Linear(4, 4))
    net.qconfig = quantize.get_default_qconfig("onednn")
    x = dt.randn(20, 4)
    found = quantize.quantize(net, lambda model, data: model(data), (x,))
    assert (found(x) - net(x)).abs().max().item() < 0.05
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[0].qconfig = quantize.default_qconfig
    apart = workflow.add_quant_dequant(net)
    assert type(apart[0]) is quantize.QuantWrapper and type(apart[1]) is nn.Linear
    trained = quantize.QuantWrapper(nn.Linear(4, 4))
    trained.qconfig = quantize.get_default_qat_qconfig()
    found = quantize.quantize_qat(trained, lambda model, data: model(data), (x,))
    assert type(found.module).__name__ == "Linear" and found(x).shape == (20, 4)


def test_hooks_stay():
    net, calls = quantize.QuantWrapper(nn.Linear(4, 4)), []
    net.module.register_forward_hook(lambda *given: calls.append("after"))
    net.module.register_forward_pre_hook(lambda *given: calls.append("before"))
    net.qconfig = quantize.default_qconfig
    prepared = quantize.prepare(net)
    prepared(dt.randn(3, 4))
    calls.clear()
    quantize.convert(prepared)(dt.randn(3, 4))
    assert calls == ["before", "after"]


def test_what_is_wrong_is_told():
    net = nn.Sequential(nn.Linear(4, 4))
    with pytest.warns(UserWarning, match="None of the submodule got qconfig"):
        quantize.prepare(net)
    with pytest.raises(AssertionError, match="training mode"):
        quantize.prepare_qat(net.eval())
    with pytest.raises(ConfigError, match="needed a set of kinds or names"):
        quantize.quantize_dynamic(net, 3)
    with pytest.warns(UserWarning, match="the model has no layer of"):
        quantize.quantize_dynamic(net, {"nothing"})
    with pytest.raises(DTypeError, match="int64"):
        quantize.quantize_dynamic(net, dtype=dt.int64)
    with pytest.raises(ConfigError, match="is_reference"):
        quantize.convert(net, is_reference=True)
    net.qconfig = "int8"
    with pytest.raises(ConfigError, match="the model: qconfig='int8' is no QConfig"):
        quantize.prepare(net)


def test_what_observers_have_seen_goes_over():
    def prepared():
        model = quantize.QuantWrapper(nn.Linear(3, 2)).eval()
        model.qconfig = quantize.default_qconfig
        return quantize.prepare(model)

    one, other = prepared(), prepared()
    one(dt.randn(5, 3))
    seen = quantize.get_observer_state_dict(one)
    assert seen and all("activation_post_process" in name for name in seen)
    quantize.load_observer_state_dict(other, seen)
    other.module.load_state_dict(one.module.state_dict())
    x = dt.randn(4, 3)
    assert quantize.convert(one)(x).equal(quantize.convert(other)(x))
    with pytest.raises(StateDictError, match="prepare"):
        quantize.load_observer_state_dict(prepared(), {**seen, "other": dt.ones(1)})


@pytest.mark.filterwarnings("ignore:compile")  # (some of these calls run eagerly, and say so)
def test_compiled_layers_go_by_the_weight_as_it_is():
    net, x = quantize.quantize_dynamic(nn.Sequential(nn.Linear(64, 8)).eval()), dt.randn(3, 64)
    compiled = dt.compile(net)
    with_weight = dt.compile(lambda w: functional_call(net, {"0.int8_weight": w}, (x,)))
    with dt.no_grad():
        assert all(compiled(x).equal(net(x)) for _ in range(3))
        for step in range(4):
            other = dt.full((8, 64), step + 1).to(dt.int8)
            assert with_weight(other).equal(functional_call(net, {"0.int8_weight": other}, (x,)))
            net[0].int8_weight.copy_(other)
            first = compiled(x)  # before an eager call has looked
            assert first.equal(net(x)) and compiled(x).equal(first)
