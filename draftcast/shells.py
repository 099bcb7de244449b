"""The completion scripts of bash, zsh and fish, and what answers them: click's, with `KEY=VALUE` handled.

Imported only by `draftcast completion` and while a shell completes.
"""

from __future__ import annotations

import os

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from draftcast.start import COMPLETE_VARIABLE

# bash takes KEY=VALUE for three words, so the whole line is handed over; nothing follows a name that ends with "=".
_BASH = """\
%(complete_func)s() {
    local type value
    COMPREPLY=()
    while IFS=',' read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                COMPREPLY+=("$value")
                if [[ $value == *= ]]; then compopt -o nospace; fi
                ;;
        esac
    done < <(COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""
_ZSH_ADDS = "compadd -U -V unsorted -a completions"
_ZSH_ADDS_WITHOUT_SPACE = (
    "compadd -S '' -U -V unsorted -- ${(M)completions:#*=}\n        compadd -U -V unsorted -- ${completions:#*=}"
)


class Bash(BashComplete):
    """As click's, from the line up to the cursor."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """(the finished words behind the program's name, the word at the cursor)."""
        *words, last = split_arg_string(os.environ.get("COMP_LINE", "") + "x")  # the x ends the word at the cursor
        self._replaced = _replaced_from(last[:-1])
        return words[1:], last[:-1]

    def format_completion(self, item: CompletionItem[str]) -> str:
        """What takes the place of the last of bash's words, which begins behind the last "=" or ":"."""
        return f"{item.type},{item.value[self._replaced :]}"


def _replaced_from(word: str) -> int:
    """Where bash's own word begins in the word at the cursor."""
    breaks = set(os.environ.get("COMP_WORDBREAKS", "")) & set("=:")
    return max((word.rfind(sign) + 1 for sign in breaks), default=0)


class Zsh(ZshComplete):
    """As click's, without a space behind a name that ends with "="."""

    source_template = ZshComplete.source_template.replace(_ZSH_ADDS, _ZSH_ADDS_WITHOUT_SPACE)


def register() -> None:
    """Makes click use these."""
    add_completion_class(Bash)
    add_completion_class(Zsh)


def script(shell: str) -> str:
    """The script that a shell reads once, to complete `draftcast` from then on."""
    from draftcast.cli import cli

    register()
    found: type[ShellComplete] | None = get_completion_class(shell)
    assert found is not None
    return found(cli, {}, "draftcast", COMPLETE_VARIABLE).source()
