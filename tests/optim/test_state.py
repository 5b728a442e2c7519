"""Hooks around steps and state dicts, groups, what is loaded and what is refused."""

import copy
import pickle

import numpy as np
import pytest

from disttrain import optim
from disttrain.context import thread
from disttrain.core import wrap
from disttrain.errors import ConfigError, DeviceError, DTypeError
from disttrain.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

ALL = [getattr(optim, n) for n in optim.__all__ if n[0].isupper() and n != "Optimizer"]
every = pytest.mark.parametrize("kind", ALL, ids=lambda k: k.__name__)


def parameter(shape=(2, 3), seed=0):
    p = wrap(np.random.default_rng(seed).standard_normal(shape).astype("f4")).requires_grad_()
    p.grad = wrap(np.ones(shape, "f4"))
    return p


def closure_of(p):
    return lambda: (p.detach() ** 2).sum()


@every
def test_state_dict_hooks_run_in_order(kind):
    opt, seen = kind([parameter()]), []
    opt.register_state_dict_pre_hook(lambda o: seen.append("second"))
    opt.register_state_dict_pre_hook(lambda o: seen.append("first"), prepend=True)
    opt.register_state_dict_post_hook(lambda o, s: seen.append("post"))
    handle = opt.register_state_dict_post_hook(lambda o, s: {**s, "more": 1})
    assert opt.state_dict()["more"] == 1 and seen == ["first", "second", "post"]
    handle.remove()
    assert "more" not in opt.state_dict()


@every
def test_load_hooks_may_change_what_is_loaded(kind):
    opt = kind([parameter()])
    saved = opt.state_dict()

    def change(o, state):
        state = copy.deepcopy(state)
        state["param_groups"][0]["lr"] = 0.125
        return state

    seen = []
    opt.register_load_state_dict_pre_hook(change)
    opt.register_load_state_dict_post_hook(lambda o: seen.append(o.param_groups[0]["lr"]))
    opt.load_state_dict(saved)
    assert seen == [0.125] and saved["param_groups"][0]["lr"] != 0.125


@every
def test_a_loaded_optimizer_goes_on_as_the_saved_one(kind):
    results = []
    for again in (False, True):
        p = parameter()
        opt = kind([p])
        for k in range(6):
            if again and k == 3:
                saved = pickle.loads(pickle.dumps(opt.state_dict()))
                opt = kind([p], lr=123.0)
                opt.load_state_dict(saved)

            def closure(p=p):
                p.grad = wrap((p.array - 1) * np.arange(1, 7, dtype="f4").reshape(2, 3))
                p.grad = p.grad.to_sparse() if kind is optim.SparseAdam else p.grad
                return wrap(((p.array - 1) ** 2).sum())

            opt.step(closure)
        results.append(p.array)
    np.testing.assert_array_equal(*results)


@every
def test_a_copy_has_what_the_optimizer_has(kind):
    p = parameter()
    p.grad = p.grad.to_sparse() if kind is optim.SparseAdam else p.grad
    opt = kind([p])
    opt.step(closure_of(p))
    twin = copy.deepcopy(opt)
    assert set(vars(twin)) == set(vars(opt)) and repr(twin) == repr(opt)
    assert twin.param_groups[0]["params"][0] is not p


@every
def test_steps_without_gradients_change_nothing(kind):
    p = parameter()
    p.grad = None
    before = p.array.copy()
    kind([p]).step(closure_of(p))
    np.testing.assert_array_equal(p.array, before)


def test_hooks_of_all_optimizers_stand_around_their_own():
    p = parameter()
    a, b, seen = optim.SGD([p]), optim.Adam([p]), []
    handles = [
        register_optimizer_step_pre_hook(lambda o, args, kwargs: seen.append("all before")),
        register_optimizer_step_post_hook(lambda o, args, kwargs: seen.append("all after")),
    ]
    a.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    a.register_step_post_hook(lambda o, args, kwargs: seen.append("after"))
    a.step()
    b.step()
    assert seen == ["all before", "before", "after", "all after", "all before", "all after"]
    for handle in handles:
        handle.remove()
    b.step()
    assert len(seen) == 6
    assert not any(thread.rank.slots["optim.state.hooks"].values())


def test_a_pre_hook_may_give_other_arguments():
    p = parameter()
    opt = optim.SGD([p])
    opt.register_step_pre_hook(lambda o, args, kwargs: ((lambda: 7,), kwargs))
    assert opt.step() == 7
    opt.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(ConfigError, match="None or a tuple"):
        opt.step()


def test_names_go_with_all_groups_or_with_none():
    p, q = parameter(), parameter(seed=1)
    with pytest.raises(ConfigError, match="Some param names are missing"):
        optim.SGD([("weight", p), q])
    opt = optim.SGD([p])
    with pytest.raises(ConfigError, match="cannot add param group with names"):
        opt.add_param_group({"params": [("bias", q)]})
    named = optim.SGD([("weight", p)])
    named.load_state_dict(opt.state_dict())
    assert named.state_dict()["param_groups"][0]["param_names"] == ["weight"]


def test_older_state_without_newer_settings_loads():
    p = parameter()
    opt = optim.Adam([p])
    opt.step()
    saved = copy.deepcopy(opt.state_dict())
    for key in ("maximize", "fused", "capturable", "decoupled_weight_decay"):
        del saved["param_groups"][0][key]
    saved["state"][0]["step"] = saved["state"][0]["step"].item()
    opt.load_state_dict(saved)
    opt.step()
    assert opt.state[p]["step"].item() == 2


def test_state_of_another_shape_is_refused():
    p = parameter((2, 3))
    opt = optim.Adam([p])
    opt.step()
    other = optim.Adam([parameter((3, 2))])
    with pytest.raises(ConfigError, match=r"exp_avg was saved with shape \[2, 3\]"):
        other.load_state_dict(opt.state_dict())
    with pytest.raises(ConfigError, match="different number of parameter groups"):
        optim.Adam([{"params": [p]}, {"params": [parameter()]}]).load_state_dict(opt.state_dict())


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_hyperparameters_may_be_tensors_of_one_element(shape):
    results = []
    for number in (float, lambda x: wrap(np.full(shape, x, "f8"))):
        p = parameter()
        opt = optim.Adam([p], lr=number(0.1), betas=(number(0.5), number(0.75)))
        opt.step()
        opt.step()
        results.append(p.array)
    np.testing.assert_array_equal(*results)


def test_mistakes_are_named():
    p, many = parameter(), wrap(np.ones(2, "f4"))
    with pytest.raises(ConfigError, match="Tensor lr must be 1-element"):
        optim.SGD([p], lr=many)
    with pytest.raises(ConfigError, match="betas must be either both floats or both Tensors"):
        optim.Adam([p], betas=(0.9, wrap(np.ones((), "f4"))))
    with pytest.raises(ConfigError, match="lr as a Tensor is not supported for capturable=False"):
        optim.Adam([p], lr=wrap(np.asarray(0.1)), foreach=True)
    with pytest.raises(DTypeError, match="`fused` does not support `differentiable`"):
        optim.SGD([p], fused=True, differentiable=True)
    with pytest.raises(ConfigError, match="Invalid eta values"):
        optim.Rprop([p], etas=(1.0, 0.5))
    with pytest.raises(ConfigError, match="Clipping threshold d"):
        optim.Adafactor([p], d=0.5)
    with pytest.raises(ConfigError, match="only supports 2D"):
        optim.Muon([parameter((2,))])
    with pytest.raises(ConfigError, match="doesn't support per-parameter options"):
        optim.LBFGS([{"params": [p]}, {"params": [parameter()]}])
    with pytest.raises(ConfigError, match="a closure is needed"):
        optim.LBFGS([p]).step()


@pytest.mark.parametrize("kind", [optim.Adafactor, optim.Muon])
def test_complex_parameters_are_refused_where_they_have_no_meaning(kind):
    z = wrap(np.ones((2, 2), "c8")).requires_grad_()
    z.grad = wrap(np.ones((2, 2), "c8"))
    with pytest.raises(DTypeError, match="does not support complex parameters"):
        kind([z]).step()


def test_a_fused_step_needs_memory():
    from disttrain.backends.null import NullArray

    p = wrap(NullArray((4,), np.float32)).requires_grad_()
    p.grad = wrap(NullArray((4,), np.float32))
    opt = optim.Adagrad([p], fused=True)
    with pytest.raises(DeviceError, match="`fused=True` requires all the params"):
        opt.step()
    assert not opt.state[p]


def test_an_optimizer_can_be_lent_to_other_parameters():
    p, q = parameter(), parameter(seed=1)
    opt = optim.Adam([p], lr=0.1)
    opt.step()
    given = copy.deepcopy(opt.state_dict())
    given["param_groups"][0]["lr"] = 0.5
    before, held = q.array.copy(), opt.state
    alone = optim.Adam([parameter(seed=1)], lr=0.1)
    alone.load_state_dict(given)
    alone.step()
    with optim.swap_in_optimizer_params_and_state(opt, {"weight": q}, given):
        assert opt.param_groups[0]["lr"] == 0.5
        opt.step()
    assert (q.array != before).all() and given["state"][0]["step"].item() == 2
    np.testing.assert_array_equal(q.array, alone.param_groups[0]["params"][0].array)
    assert opt.state is held and opt.param_groups[0]["params"][0] is p
    assert opt.param_groups[0]["lr"] == 0.1 and opt.state[p]["step"].item() == 1


def test_what_does_not_fit_is_not_lent():
    p = parameter()
    opt = optim.Adam([p])
    swap = optim.swap_in_optimizer_params_and_state
    with pytest.raises(RuntimeError, match="initialized optimizer state"), swap(opt, {}, {}):
        pass
    opt.step()
    saved = opt.state_dict()
    for given, text in (
        ({}, "what optimizer.state_dict"),
        ({**saved, "param_groups": []}, "different number of parameter groups"),
        ({**saved, "param_groups": [{"params": [0]}]}, "keys of group 0"),
        ({**saved, "state": {0: {}, 7: {}}}, "extra keys"),
        (saved, "to match optimizer.param_groups ordering"),
    ):
        with pytest.raises(RuntimeError, match=text), swap(opt, {}, given):
            pass


def test_adagrad_shares_its_state_before_the_first_step():
    p = parameter()
    opt = optim.Adagrad([p])
    opt.share_memory()
    assert opt.state[p]["sum"].is_shared() and opt.state[p]["step"].item() == 0
    before = p.array.copy()
    opt.step()
    assert (p.array != before).all() and opt.state[p]["sum"].is_shared()
