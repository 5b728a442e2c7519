"""Loads an x86-64 ELF object file into executable memory.

Loading kernels this way, instead of through LLVM's own loader, means that a process whose kernels
are all in the cache never loads LLVM: that saves 150 ms and 45 MB in every rank. The generated code
holds no address of the process (see ``wrap.py``), so few kinds of relocation occur; another kind,
or another format, raises ``ObjectError``. Memory is writable first and executable after, never
both at once.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass

from .immortal import immortal

_PROGBITS, _SYMTAB, _RELA, _NOBITS = 1, 2, 4, 8
_ALLOC = 2
_R_64, _R_PC32, _R_PLT32 = 1, 2, 4
_STUB = b"\x48\xb8%s\xff\xe0"  # movabs rax, address; jmp rax
_STUB_SIZE = 12


class ObjectError(Exception):
    """The object file holds something that this loader does not know, or memory was refused."""


@dataclass(slots=True)
class _Section:
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    at: int = -1  # its place in memory


def load(code: bytes, resolve: Callable[[str], int]) -> dict[str, int]:
    """Load an object file, for good; the addresses of its global functions. ``resolve(name)`` gives
    the address of a C function that it calls."""
    if code[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", code, 16) != (1, 62):
        raise ObjectError("not an x86-64 ELF object file")
    sections = _sections(code)
    size = _place(sections)
    table = next(s for s in sections if s.kind == _SYMTAB)
    symbols = _symbols(code, sections, table)
    missing = [name for name, at, _ in symbols if at is None and name]
    stubs = {name: size + k * _STUB_SIZE for k, name in enumerate(dict.fromkeys(missing))}
    memory = mmap.mmap(-1, size + len(stubs) * _STUB_SIZE + 1)
    for s in sections:
        if s.at >= 0 and s.kind != _NOBITS:
            memory[s.at : s.at + s.size] = code[s.offset : s.offset + s.size]
    for name, at in stubs.items():
        memory[at : at + _STUB_SIZE] = _STUB % struct.pack("<Q", resolve(name))
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    places = [stubs.get(name, 0) if at is None else at for name, at, _ in symbols]
    for s in sections:
        if s.kind == _RELA and sections[s.info].at >= 0:
            _relocate(code, s, sections[s.info].at, memory, places, base)
    _make_executable(base, len(memory))
    immortal(memory)
    return {n: base + at for n, at, public in symbols if public and at is not None}


def _sections(code: bytes) -> list[_Section]:
    start = struct.unpack_from("<Q", code, 40)[0]
    count = struct.unpack_from("<H", code, 60)[0]
    out = []
    for k in range(count):
        _, kind, flags, _, offset, size, link, info, align, _ = struct.unpack_from(
            "<IIQQQQIIQQ", code, start + 64 * k
        )
        out.append(_Section(kind, flags, offset, size, link, info, max(align, 1)))
    return out


def _place(sections: list[_Section]) -> int:
    """Give each section that is needed at run time its place; returns the end."""
    end = 0
    for s in sections:
        if s.flags & _ALLOC and s.kind in (_PROGBITS, _NOBITS):
            s.at = -(-end // s.align) * s.align
            end = s.at + s.size
    return -(-end // 16) * 16


def _symbols(
    code: bytes, sections: list[_Section], table: _Section
) -> list[tuple[str, int | None, bool]]:
    """(name, place or None where undefined, is a global function) of every symbol."""
    names = sections[table.link]
    out: list[tuple[str, int | None, bool]] = []
    for k in range(table.size // 24):
        at, info, _, index, value, _ = struct.unpack_from("<IBBHQQ", code, table.offset + 24 * k)
        start = names.offset + at
        name = code[start : code.index(b"\0", start)].decode()
        inside = 0 < index < len(sections) and sections[index].at >= 0
        place = sections[index].at + value if inside else None
        out.append((name if index == 0 or inside else "", place, info >> 4 == 1 and inside))
    return out


def _relocate(
    code: bytes, rela: _Section, target: int, memory: mmap.mmap, places: list[int], base: int
) -> None:
    for k in range(rela.size // 24):
        offset, kind, symbol, addend = struct.unpack_from("<QIIq", code, rela.offset + 24 * k)
        at, value = target + offset, places[symbol] + addend
        if kind in (_R_PC32, _R_PLT32):
            memory[at : at + 4] = struct.pack("<i", value - at)
        elif kind == _R_64:
            memory[at : at + 8] = struct.pack("<Q", base + value)
        else:
            raise ObjectError(f"relocation of kind {kind} is not known to this loader")


def _make_executable(base: int, size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if libc.mprotect(base, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise ObjectError(f"this system refuses executable memory (errno {ctypes.get_errno()})")
