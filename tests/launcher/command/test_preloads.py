"""What is loaded once for all ranks follows from the program's text."""

from disttrain_launcher.command.preloads import AGAIN, ALWAYS, FIRST, of


def more(text):
    return set(of(0, text)) - set(ALWAYS)


def test_a_program_that_names_nothing_needs_the_group_alone():
    assert more("import os\nimport disttrain as dt\nT.distributed.all_reduce(T.ones(4))\n") == set()


def test_what_a_program_names():
    assert more("import disttrain as dt\nnet = dt.nn.Linear(2, 2)\n") == {"disttrain.nn"}
    assert more("from torch import optim\n") == {"disttrain.optim"}
    assert more("import disttrain.nn.parallel, os\nDDP(net)\n") == {
        "disttrain.nn", "disttrain.distributed.ddp"}  # fmt: skip
    assert more("from disttrain.distributed.fsdp import fully_shard\n") == {
        "disttrain.distributed.fsdp"
    }
    assert more("loader = torch.utils.data.DataLoader(x)\n") == {"disttrain.data"}
    assert more("sample = name.nnx\n") == set()


def test_a_program_with_modules_of_its_own_may_need_the_usual():
    for text in ("import trainer\n", "import os, trainer\n", "if x:\n    from .a import main\n",
                 "import importlib\n", "import trainer as t\n"):  # fmt: skip
        assert of(0, text) == FIRST


def test_a_program_whose_text_is_not_known():
    assert of(0, None) == FIRST


def test_ranks_that_may_begin_again():
    assert of(1, "") == (*ALWAYS, *AGAIN)
