"""LLVM IR text to an object file, by llvmlite: the only file that loads LLVM, when called."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from .immortal import immortal

_lock = threading.Lock()


def compile_ir(text: str) -> bytes:
    """The object file for this machine's processor. Takes 20-40 ms, and 150 more the first time.

    Raises ``ImportError`` where llvmlite is absent, ``RuntimeError`` where LLVM refuses the text.
    """
    import llvmlite.binding as llvm

    with _lock:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()
        target = llvm.Target.from_default_triple()
        machine = target.create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=llvm.get_host_cpu_features().flatten(),
            opt=3,
            reloc="pic",
            codemodel="small",
        )
        module = llvm.parse_assembly(text)
        module.verify()
        return machine.emit_object(module)


def run_ir(text: str, names: Sequence[str]) -> dict[str, int]:
    """The addresses of functions, placed in memory by LLVM itself, whatever the processor, and for
    good. Raises as ``compile_ir``."""
    import llvmlite.binding as llvm

    with _lock:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        module = llvm.parse_assembly(text)
        module.verify()
        engine = immortal(llvm.create_mcjit_compiler(module, machine))
        engine.finalize_object()
        return {name: engine.get_function_address(name) for name in names}
