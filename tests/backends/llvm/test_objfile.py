"""Object files loaded into memory: sections, symbols, relocations, calls of C functions."""

from __future__ import annotations

import ctypes
import struct

import pytest

from disttrain.backends.llvm import native, objfile
from disttrain.backends.llvm.objfile import ObjectError, load

PROGBITS, SYMTAB, STRTAB, RELA, NOBITS = 1, 2, 3, 4, 8
PC32, ABS64 = 2, 1


def section(kind, flags=0, data=b"", link=0, info=0, align=1, size=None):
    return kind, flags, data, link, info, align, len(data) if size is None else size


def elf(*sections):
    """An object file of these sections, behind an empty one."""
    body, heads = b"", [bytes(64)]
    for kind, flags, data, link, info, align, size in sections:
        heads.append(struct.pack("<IIQQQQIIQQ", 0, kind, flags, 0, 64 + len(body), size, link,
                                 info, align, 0))  # fmt: skip
        body += data
    head = b"\x7fELF\x02\x01".ljust(16, b"\0") + struct.pack("<HH", 1, 62)
    head = head.ljust(40, b"\0") + struct.pack("<Q", 64 + len(body))
    head = head.ljust(60, b"\0") + struct.pack("<H", len(heads)) + bytes(2)
    return head + body + b"".join(heads)


def symbol(name, public, index, value):
    return struct.pack("<IBBHQQ", name, public << 4, 0, index, value, 0)


NAMES = b"\0one\0two\0far\0"
ONE, TWO, FAR = 1, 5, 9


def object_of(text, rela=b"", data=b""):
    """One of text (section 1) and data (2), with functions one (at 0) and two (at 16) and data at
    0, and a C function far."""
    symbols = bytes(24)
    symbols += symbol(ONE, 1, 1, 0) + symbol(TWO, 0, 1, 16) + symbol(0, 0, 2, 0)
    symbols += symbol(FAR, 1, 0, 0)
    return elf(
        section(PROGBITS, 6, text, align=16),
        section(PROGBITS, 2, data, align=64),
        section(SYMTAB, 0, symbols, link=4),
        section(STRTAB, 0, NAMES),
        section(RELA, 0, rela, info=1),
    )


def relocation(at, kind, of, addend=0):
    return struct.pack("<QIIq", at, kind, of, addend)


runs = pytest.mark.skipif(bool(native.why_unavailable()), reason="no code is run on this machine")
RETURN_7 = b"\xb8\x07\x00\x00\x00\xc3"


def call(address):
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()


def unknown(name):
    raise AssertionError(name)


@runs
def test_public_functions_are_found_and_run():
    found = load(object_of(RETURN_7), lambda name: 4096)
    assert set(found) == {"one"} and call(found["one"]) == 7


@runs
def test_a_call_inside_the_file_and_data_beside_it():
    jump = b"\xe9\0\0\0\0".ljust(16, b"\x90")  # one: jmp two
    read = b"\x8b\x05\0\0\0\0\xc3"  # two: mov eax, [rip + data]
    rela = relocation(1, PC32, 2, -4) + relocation(18, PC32, 3, -4 + 8)
    code = object_of(jump + read, rela, struct.pack("<iii", 1, 2, 42))
    assert call(load(code, lambda name: 4096)["one"]) == 42


@runs
def test_a_c_function_is_called_through_its_address():
    seen = []

    @ctypes.CFUNCTYPE(ctypes.c_int)
    def far():
        seen.append(1)
        return 99

    asked = []

    def resolve(name):
        asked.append(name)
        return ctypes.cast(far, ctypes.c_void_p).value

    found = load(object_of(b"\xe9\0\0\0\0", relocation(1, 4, 4, -4)), resolve)
    assert call(found["one"]) == 99 and seen == [1] and asked == ["far"]


@runs
def test_an_address_in_full():
    code = b"\x48\xb8" + bytes(8) + b"\x8b\x00\xc3"  # mov rax, data; mov eax, [rax]
    found = load(object_of(code, relocation(2, ABS64, 3, 4), struct.pack("<ii", 5, 6)), lambda n: 1)
    assert call(found["one"]) == 6


def test_what_it_does_not_know_is_refused():
    with pytest.raises(ObjectError, match="relocation of kind 9 is not known"):
        load(object_of(RETURN_7, relocation(1, 9, 2)), lambda name: 1)
    for code in (
        b"",
        b"\x7fELF\x01\x01" + bytes(60),
        object_of(RETURN_7)[:18] + b"\x03\0" + bytes(44),
    ):
        with pytest.raises(ObjectError, match="not an x86-64 ELF object file"):
            load(code, unknown)


def test_a_function_that_nobody_has_is_the_resolver_s_error():
    with pytest.raises(AssertionError, match="far"):
        load(object_of(RETURN_7), unknown)


def test_sections_are_placed_where_they_may_lie():
    kinds = [
        objfile._Section(PROGBITS, 2, 0, 5, 0, 0, 1),
        objfile._Section(PROGBITS, 0, 0, 100, 0, 0, 1),  # not needed at run time
        objfile._Section(NOBITS, 2, 0, 7, 0, 0, 64),
        objfile._Section(SYMTAB, 2, 0, 9, 0, 0, 8),
        objfile._Section(PROGBITS, 6, 0, 3, 0, 0, 16),
    ]
    end = objfile._place(kinds)
    assert [s.at for s in kinds] == [0, -1, 64, -1, 80] and end == 96
