"""What a server may be asked to do."""

import pytest

from disttrain.errors import ConfigError
from disttrain.serve.options import Options, cores

GOOD = {"models": {"m": "m.dtp"}, "workers": 1}


def test_what_is_usual_is_for_this_machine_alone() -> None:
    options = Options(**GOOD)
    assert options.local and options.host == "127.0.0.1"
    assert (options.max_batch, options.delay, options.port) == (32, 0.002, 8000)
    assert cores() >= 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"models": {}}, "no model"),
        ({"models": {"a/b": "f"}}, "'a/b'"),
        ({"models": {"..": "f"}}, "letters"),
        ({"host": "0.0.0.0"}, "--token-file"),
        ({"workers": 0}, "workers: 0"),
        ({"delay": float("nan")}, "delay: nan"),
        ({"delay": -1.0}, "delay"),
        ({"port": 70000}, "port"),
        ({"max_batch": 0}, "max_batch"),
        ({"certificate": "c"}, "go together"),
    ],
)
def test_what_makes_no_sense_is_refused(given, told) -> None:
    with pytest.raises(ConfigError, match="serve") as caught:
        Options(**{**GOOD, **given})
    assert told in str(caught.value)


def test_elsewhere_clients_show_a_token_which_stands_in_no_text() -> None:
    options = Options(**GOOD, host="0.0.0.0", token=b"very-secret")
    assert not options.local and "very-secret" not in repr(options)
