"""inference_mode: records nothing, and says so."""

import disttrain as dt


def test_inference_mode_is_told_and_records_nothing():
    x = dt.ones(2, requires_grad=True)
    with dt.inference_mode():
        assert dt.is_inference_mode_enabled()
        assert not (x * 2).requires_grad
        with dt.inference_mode(False):
            assert dt.is_inference_mode_enabled()  # False adds nothing
    assert not dt.is_inference_mode_enabled()
    assert (x * 2).requires_grad


def test_inference_mode_as_decorator():
    @dt.inference_mode()
    def inside():
        return dt.is_inference_mode_enabled()

    assert inside()
    assert not dt.is_inference_mode_enabled()
