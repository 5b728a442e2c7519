"""What libraries look up in PyTorch's own modules."""

from __future__ import annotations

import gc

import pytest

import disttrain as dt
from disttrain.compat.torch import inner

pytestmark = pytest.mark.simulated
M = inner.modules()


def test_a_dictionary_by_identity_keeps_no_key():
    weak = M["torch.utils.weak"].WeakIdKeyDictionary()
    a, b = dt.ones(2), dt.ones(2)
    weak[a], weak[b] = 1, 2
    assert weak[a] == 1 and len(weak) == 2 and a in weak and dt.ones(2) not in weak
    assert [t is a or t is b for t in weak] == [True, True]
    del weak[a]
    assert a not in weak
    del b
    gc.collect()
    assert len(weak) == 0 and weak.data == {}


def test_handles_of_hooks():
    handle_of = M["torch.utils.hooks"].RemovableHandle
    hooks, others = {}, {}
    with handle_of(hooks, extra_dict=others) as handle:
        hooks[handle.id] = others[handle.id] = print
        assert handle.hooks_dict_ref() is hooks
    assert hooks == {} == others
    layer = dt.nn.Linear(1, 1)
    assert isinstance(layer.register_forward_hook(print), handle_of)


def test_tensors_become_one_and_many_again():
    u = M["torch._utils"]
    parts = [dt.ones(2, 2), dt.zeros(3)]
    flat = u._flatten_dense_tensors(parts)
    assert flat.shape == (7,)
    again = u._unflatten_dense_tensors(flat, parts)
    assert [t.shape for t in again] == [(2, 2), (3,)] and again[0].sum().item() == 4
    mixed = [dt.ones(2), dt.ones(2).double(), dt.ones(2)]
    assert [len(part) for part in u._take_tensors(mixed, 16)] == [2, 1]
    assert [len(part) for part in u._take_tensors(mixed, 8)] == [1, 1, 1]


def test_numbers_of_devices():
    index = M["torch._utils"]._get_device_index
    assert index(3) == 3 and index("cuda:1") == 1 and index("cpu", allow_cpu=True) == -1
    with pytest.raises(ValueError, match="non cpu"):
        index("cpu")
    with pytest.raises(ValueError, match="specified index"):
        index("cuda")


def test_properties_of_classes():
    class Named:
        @M["torch._utils"].classproperty
        def name(cls):
            return cls.__name__

    assert Named.name == "Named"


@pytest.mark.parametrize(
    ("args", "named", "want"),
    [
        (("cpu",), {}, (dt.device("cpu"), None, False, None)),
        ((dt.float64, True), {}, (None, dt.float64, True, None)),
        ((), {"dtype": dt.float16, "non_blocking": True}, (None, dt.float16, True, None)),
        ((dt.ones(1),), {}, (dt.device("cpu"), dt.float32, False, None)),
    ],
)
def test_what_to_was_asked_for(args, named, want):
    assert M["torch._C._nn"]._parse_to(*args, **named) == want


def test_no_graph_is_traced_and_this_is_said():
    assert not M["torch.onnx"].is_in_onnx_export()
    assert M["torch._C"]._get_tracing_state() is None


def test_names_of_transforms_are_among_those_inside():
    names = inner.modules()["torch._C"]
    assert names._debug_only_are_vmap_fallback_warnings_enabled() in (True, False)
    assert names.Generator is dt.Generator


def test_a_block_that_decorates():
    class Counting(M["torch.utils._contextlib"]._DecoratorContextManager):
        entered = 0

        def __enter__(self):
            Counting.entered += 1

        def __exit__(self, *exc):
            pass

    @Counting()
    def f():
        return 3

    assert f() + f() == 6 and Counting.entered == 2


def test_lists_by_place_and_type():
    group = M["torch.utils._foreach_utils"]._group_tensors_by_device_and_dtype
    a, b, c = dt.ones(1), dt.ones(1).double(), dt.ones(2)
    found = group([[a, b, c], [1, 2, 3]], with_indices=True)
    kept, places = found[a.device, dt.float32]
    assert kept == [[a, c], [1, 3]] and places == [0, 2] and len(found) == 2


def test_files_named_like_functions():
    assert M["torch.nn.utils.convert_parameters"].parameters_to_vector
    assert M["torch.nn.utils.fusion"].fuse_conv_bn_eval
    assert M["torch.overrides"].is_tensor_like(dt.ones(1))
    assert not M["torch.overrides"].is_tensor_like(1)


def test_seeds_of_workers_are_those_of_the_loader():
    worker = M["torch.utils.data._utils.worker"]
    assert worker._generate_state(3, 1) != worker._generate_state(3, 2)
    assert len(worker._generate_state(3, 1)) == 4 and worker.get_worker_info() is None


def test_iterators_of_loaders_are_known_by_class():
    named = M["torch.utils.data.dataloader"]
    walk = iter(named.DataLoader([1, 2]))
    assert isinstance(walk, named._BaseDataLoaderIter)
    assert isinstance(walk, named._SingleProcessDataLoaderIter)
    assert not isinstance(walk, named._MultiProcessingDataLoaderIter)
