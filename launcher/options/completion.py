"""Completion of options in a shell: from the parser to a script for bash or zsh. Pure.

The program's own arguments are completed as files: what they mean is the program's to know.
"""

from __future__ import annotations

import argparse
import re

SHELLS = ("bash", "zsh")
_FOLDERS = ("log_dir",)

_BASH = """\
# Completion of {name}. Use: eval "$({name} --print-completion bash)"
_{name}() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} i
    if [[ $current == = ]]; then current=; fi
    if [[ $previous == = ]]; then previous=${{COMP_WORDS[COMP_CWORD-2]}}; fi
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${{COMP_WORDS[i]}} in
            {valued}) ((i++)); if [[ ${{COMP_WORDS[i]}} == = ]]; then ((i++)); fi ;;
            -*) ;;
            *) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
        esac
    done
    case $previous in
{cases}
        {valued}) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    esac
    case $current in
        -*) mapfile -t COMPREPLY < <(compgen -W "{flags}" -- "$current") ;;
        *) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    esac
}}
complete -o filenames -F _{name} {name}
"""

_ZSH = """\
#compdef {name}
# Completion of {name}. Use: eval "$({name} --print-completion zsh)", after compinit
_{name}() {{
    _arguments -S -s \\
{specs}
        '1:program:_files' \\
        '*::argument:_files'
}}
if [ "$funcstack[1]" = "_{name}" ]; then _{name} "$@"; else compdef _{name} {name}; fi
"""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """What completes the options of ``parser`` in ``shell``, which is of ``SHELLS``."""
    flags = [a for a in parser._actions if a.option_strings and a.help != argparse.SUPPRESS]
    return (_bash if shell == "bash" else _zsh)(parser.prog, flags)


def _bash(name: str, flags: list[argparse.Action]) -> str:
    words = [word for flag in flags for word in flag.option_strings]
    valued = [word for flag in flags if flag.nargs not in (0, "?") for word in flag.option_strings]
    cases = []
    for flag in flags:
        names = "|".join(flag.option_strings)
        if flag.choices:
            choices = " ".join(map(str, flag.choices))
            reply = f'compgen -W "{choices}" -- "$current"'
        elif flag.dest in _FOLDERS:
            reply = 'compgen -d -- "$current"'
        else:
            continue
        cases.append(f"        {names}) mapfile -t COMPREPLY < <({reply}); return ;;")
    return _BASH.format(
        name=name, valued="|".join(valued), cases="\n".join(cases), flags=" ".join(words)
    )


def _zsh(name: str, flags: list[argparse.Action]) -> str:
    return _ZSH.format(name=name, specs="\n".join(_spec(flag) for flag in flags))


def _spec(flag: argparse.Action) -> str:
    """One option for ``_arguments``: all its spellings, what it is, and what its value may be."""
    told = f"[{_plain((flag.help or '').replace('%%', '%'))}]"
    value = ""
    if flag.nargs not in (0, "?"):
        kind = _plain(flag.metavar if isinstance(flag.metavar, str) else flag.dest)
        action = "_files -/" if flag.dest in _FOLDERS else "_files"
        if flag.choices:
            action = f"({' '.join(map(str, flag.choices))})"
        value = f":{kind}:{action}"
    names = flag.option_strings
    if len(names) == 1:
        return f"        '{names[0]}{'=' if value else ''}{told}{value}' \\"
    each = ",".join(word + ("=" if value and word.startswith("--") else "") for word in names)
    return f"        '({' '.join(names)})'{{{each}}}'{told}{value}' \\"


def _plain(text: str) -> str:
    """Without what means something in a specification or in quotes."""
    return re.sub(r"[\[\]:'\\]", " ", text)
