"""DataLoader without workers: batches, arguments, order; and what workers must give as well."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.core import Tensor, wrap
from disttrain.core.random import Generator, manual_seed
from disttrain.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    get_worker_info,
)
from disttrain.errors import ConfigError, DTypeError, ShapeError

# A machine with few processors is told that 3 workers are many.
pytestmark = pytest.mark.filterwarnings("ignore:.*excessive worker creation")


class Squares(Dataset):
    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i * i


class Stream(IterableDataset):
    """0 .. n-1, dealt to the workers in turn."""

    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __iter__(self):
        me = get_worker_info()
        return iter(range(self.n) if me is None else range(me.id, self.n, me.num_workers))


def lists(loader):
    return [b.array.tolist() if isinstance(b, Tensor) else b for b in loader]


def flat(batches):
    return [x for batch in batches for x in batch]


BOTH = pytest.mark.parametrize("workers", [0, 2])


@BOTH
def test_batches_in_order(workers):
    loader = DataLoader(Squares(), 4, num_workers=workers)
    assert lists(loader) == [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81]] == lists(loader)
    assert len(loader) == len(iter(loader)) == 3
    assert lists(DataLoader(Squares(), 4, drop_last=True, num_workers=workers))[-1][-1] == 49


@BOTH
@pytest.mark.parametrize("source", [Squares(), list(range(10)), range(10), np.arange(10)])
def test_whatever_has_items_and_a_length(source, workers):
    got = flat(lists(DataLoader(source, 3, num_workers=workers)))
    assert got == [source[i] for i in range(10)]


@BOTH
def test_shuffle_is_decided_by_the_seed_alone(workers):
    manual_seed(5)
    loader = DataLoader(Squares(50), 7, shuffle=True, num_workers=workers)
    first, second = lists(loader), lists(loader)
    assert sorted(flat(first)) == [i * i for i in range(50)] and first != second
    manual_seed(5)
    plain = DataLoader(Squares(50), 7, shuffle=True)
    assert [lists(plain), lists(plain)] == [first, second]
    given = [
        lists(DataLoader(Squares(), 3, shuffle=True, generator=Generator().manual_seed(1)))
        for _ in range(2)
    ]
    assert given[0] == given[1]


@BOTH
def test_samplers_of_ones_own(workers):
    assert lists(DataLoader(Squares(), 2, sampler=[3, 1, 2], num_workers=workers)) == [[9, 1], [4]]
    batches = [[1, 2], [3], [0, 1, 2, 3]]
    loader = DataLoader(Squares(), batch_sampler=batches, num_workers=workers)
    assert lists(loader) == [[1, 4], [9], [0, 1, 4, 9]] and len(loader) == 3
    assert loader.batch_size is None and loader.sampler is None


class Letters(Dataset):
    def __getitem__(self, key):
        return key.upper()


@BOTH
def test_keys_need_not_be_numbers(workers):
    loader = DataLoader(Letters(), batch_sampler=[["a", "b"], ["c"]], num_workers=workers)
    assert lists(loader) == [["A", "B"], ["C"]]


@BOTH
def test_without_batches(workers):
    got = list(DataLoader([np.ones(2), (1, np.float32(2))], batch_size=None, num_workers=workers))
    assert isinstance(got[0], Tensor) and got[0].shape == (2,)
    assert got[1][0] == 1 and isinstance(got[1][1], Tensor)
    loader = DataLoader(Squares(4), batch_size=None, sampler=[[0], 1][1:], num_workers=workers)
    assert list(loader) == [1] and len(loader) == 1


@BOTH
def test_collate_of_ones_own(workers):
    assert list(DataLoader(Squares(5), 2, collate_fn=sum, num_workers=workers)) == [1, 13, 16]


@BOTH
def test_tensor_datasets(workers):
    x, y = np.arange(40.0).reshape(20, 2), np.arange(20)
    for xb, yb in DataLoader(TensorDataset(wrap(x), wrap(y)), 6, num_workers=workers, shuffle=True):
        np.testing.assert_array_equal(xb.array, x[yb.array])
        assert xb.array.flags.writeable and xb.array.flags.c_contiguous


def test_iterable():
    assert lists(DataLoader(Stream(5), 2)) == [[0, 1], [2, 3], [4]]
    assert lists(DataLoader(Stream(5), 2, drop_last=True)) == [[0, 1], [2, 3]]
    assert list(DataLoader(Stream(3), None)) == [0, 1, 2]
    assert len(DataLoader(Stream(5), 2)) == 3 and len(DataLoader(Stream(5), None)) == 5


def test_iterable_with_workers():
    """Worker 0 has 0 2 4 6 8, worker 1 the odd ones; they answer in turn."""
    got = lists(DataLoader(Stream(10), 2, num_workers=2))
    assert got == [[0, 2], [1, 3], [4, 6], [5, 7], [8], [9]]
    assert sorted(flat(lists(DataLoader(Stream(7), 2, num_workers=3)))) == list(range(7))


class Uneven(IterableDataset):
    def __iter__(self):
        return iter(range(get_worker_info().id * 20))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("prefetch", [1, 3])
def test_workers_whose_streams_end_early(ordered, prefetch):
    loader = DataLoader(Uneven(), 3, num_workers=3, in_order=ordered, prefetch_factor=prefetch)
    assert sorted(flat(lists(loader))) == sorted([*range(20), *range(40)])


class WithItems(Squares):
    def __getitems__(self, indices):
        return [-i for i in indices]


def test_getitems_is_asked_for_whole_batches():
    assert lists(DataLoader(WithItems(4), 2)) == [[0, -1], [-2, -3]]


def test_next_of_iter():
    loader = DataLoader(Squares(), 2)
    assert next(iter(loader)).array.tolist() == next(iter(loader)).array.tolist() == [0, 1]


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": -1}, {"num_workers": 1.5}, {"timeout": -1}, {"prefetch_factor": 2},
        {"persistent_workers": True}, {"multiprocessing_context": "fork"}, {"batch_size": 0},
        {"num_workers": 1, "prefetch_factor": 0}, {"batch_size": None, "drop_last": True},
        {"num_workers": 1, "multiprocessing_context": "thread"}, {"generator": 3},
        {"sampler": [1], "shuffle": True}, {"batch_sampler": [[1]], "batch_size": 2},
        {"batch_sampler": [[1]], "shuffle": True}, {"batch_sampler": [[1]], "sampler": [1]},
        {"batch_sampler": [[1]], "drop_last": True}, {"drop_last": 1},
    ],
)  # fmt: skip
def test_arguments_that_make_no_sense(options):
    with pytest.raises(ConfigError):
        DataLoader(Squares(), **options)


@pytest.mark.parametrize("options", [{"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}])
def test_iterable_datasets_decide_their_order(options):
    with pytest.raises(ConfigError, match=r"expected unspecified .* decides its order"):
        DataLoader(Stream(), **options)
    with pytest.raises(ConfigError, match="batch_size"):
        DataLoader(Stream(), 0)
    DataLoader(Stream(), shuffle=False)


def test_a_context_that_is_none():
    with pytest.raises(TypeError, match="should be a valid context object"):
        DataLoader(Squares(), num_workers=1, multiprocessing_context=object())


def test_more_workers_than_processors_are_warned_of():
    with pytest.warns(UserWarning, match=r"num_workers=9999 given.*excessive") as told:
        DataLoader(Squares(), num_workers=9999)
    assert told[0].filename == __file__


class Everything(Stream):
    """The same for each worker."""

    def __iter__(self):
        return iter(range(self.n))


@pytest.mark.parametrize("persistent", [False, True])
def test_more_than_the_promised_length_is_warned_of(persistent):
    options = {"num_workers": 2, "batch_size": None, "persistent_workers": persistent}
    loader = DataLoader(Everything(3), **options)
    assert sorted(loader) == [0, 0, 1, 1, 2, 2]  # nobody has asked for a length
    assert len(loader) == 3
    for _ in range(2):
        it = iter(loader)
        values = [next(it) for _ in range(3)]
        with pytest.warns(UserWarning, match=r"reported to be 3 .* but 4 samples.*each worker"):
            values.append(next(it))
        with pytest.warns(UserWarning, match="but 5 samples"):
            values.append(next(it))
        with pytest.warns(UserWarning, match="but 6 samples"):
            assert sorted([*values, *it]) == [0, 0, 1, 1, 2, 2]


def test_one_that_promised_too_little_is_warned_of_here_too():
    class Long(Stream):
        def __len__(self):
            return 1

    loader = DataLoader(Long(2), None)
    assert len(loader) == 1
    with pytest.warns(UserWarning, match=r"reported to be 1 .*but 2 samples have been fetched\. $"):
        assert list(loader) == [0, 1]


def test_empty_datasets():
    assert list(DataLoader([], 2)) == []
    with pytest.raises(ConfigError, match="0 samples"):
        DataLoader([], 2, shuffle=True)


def test_what_cannot_be_changed():
    loader = DataLoader(Squares(), 2)
    with pytest.raises(ConfigError, match="batch_size"):
        loader.batch_size = 3
    loader.worker_init_fn = print
    assert type(loader.sampler) is SequentialSampler and type(loader.batch_sampler) is BatchSampler
    assert type(DataLoader(Squares(), shuffle=True).sampler) is RandomSampler


@BOTH
def test_samples_that_do_not_fit(workers):
    with pytest.raises(ShapeError, match=r"sample 1 of the batch has shape \[3\]"):
        list(DataLoader([np.zeros(2), np.zeros(3)], 2, num_workers=workers))
    with pytest.raises(DTypeError, match="NoneType"):
        list(DataLoader([None], num_workers=workers))


def test_pinning_has_no_effect_here():
    assert lists(DataLoader([1], pin_memory=True, pin_memory_device="cuda")) == [[1]]
