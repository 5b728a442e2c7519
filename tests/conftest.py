"""Which tests run: with --peers (scripts/test --peers) those marked ``peer``, else all others."""

from __future__ import annotations


def pytest_addoption(parser):
    parser.addoption(
        "--peers",
        action="store_true",
        help="run the tests that compare with PyTorch and safetensors, and no others",
    )


def pytest_collection_modifyitems(config, items):
    wanted = config.getoption("--peers")
    left_out = [item for item in items if (item.get_closest_marker("peer") is None) == wanted]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
