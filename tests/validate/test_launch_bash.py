"""The reader of scripts against bash itself: random scripts whose commands only print their words."""

import random
import shutil
import subprocess

import pytest

from validate.launch.shell import script_invocations

BASH = shutil.which("bash")
NAMES = ("A", "B", "C")
PRINT = 'e() { local a; for a in "$@"; do printf "%s\\0" "$a"; done; printf "\\n\\0"; }\n'
HEAD = 'A=x B="b c" C=\nARR=(1 "2 3")\nset -- one "two three"\n'


def words(text: str) -> list[list[str]]:
    """The words of every call of `e` that surely happens."""
    calls = (call for call in script_invocations(text, {}) if call.argv[0] == "e" and not call.conditional)
    return [list(call.argv[1:]) for call in calls]


class Script:
    """Writes one random script: assignments, arrays, conditions, cases, loops, functions, every kind of quoting."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self) -> str:
        functions = f"f0() {{ {self.command()}\n}}\nfunction f1 {{\n{self.command()}\n}}\n"
        return f"{HEAD}{functions}{self.block(0)}\ne end"

    def block(self, depth: int) -> str:
        return "\n".join(self.statement(depth) for _ in range(self.random.randint(1, 3)))

    def statement(self, depth: int) -> str:
        if depth > 2:
            return self.command()
        write = self.random.choice(
            (self.command, self.assignment, self.condition, self.case, self.loop, self.chain, self.call)
        )
        return write() if write in (self.command, self.assignment, self.chain, self.call) else write(depth)  # type: ignore[call-arg]

    def command(self) -> str:
        return " ".join(["e", *(self.word() for _ in range(self.random.randint(0, 3)))])

    def assignment(self) -> str:
        value = ("''", "'a b'", "x", '"$A y"', "$B", '\'{"k": "v"}\'', "$(echo q r)", '"it is"')
        return self.random.choice(
            (
                f"{self.random.choice(NAMES)}={self.random.choice(value)}",
                f"ARR=({self.word()} {self.word()})",
                f"ARR+=({self.word()})",
            )
        )

    def condition(self, depth: int) -> str:
        more = self.random.choice(("", f" && {self.test()}", f" || {self.test()}"))
        rest = self.random.choice(
            ("", f"else\n{self.block(depth + 1)}\n", f"elif {self.test()}; then\n{self.block(depth + 1)}\n")
        )
        return f"if {self.test()}{more}; then\n{self.block(depth + 1)}\n{rest}fi"

    def case(self, depth: int) -> str:
        first = self.random.choice(("x", "*a*", '"a b"', "x|y", "?"))
        second = self.random.choice(("*", "y", "*b"))
        body = self.block(depth + 1)
        return f'case "${self.random.choice(NAMES)}" in\n  {first}) {self.command()} ;;\n  {second})\n{body}\n ;;\nesac'

    def loop(self, depth: int) -> str:
        items = " ".join(self.word() for _ in range(self.random.randint(1, 3)))
        return f"for i in {items}; do\n{self.block(depth + 1)}\ne $i\ndone"

    def chain(self) -> str:
        return f"{self.test()} {self.random.choice(('&&', '||'))} {self.command()}"

    def call(self) -> str:
        return f"f{self.random.randint(0, 1)} {self.word()}"

    def test(self) -> str:
        name = self.random.choice(NAMES)
        return self.random.choice(
            (
                f'[ -n "${name}" ]', f'[ -z "${name}" ]', f'[ "${name}" = x ]', f'[[ "${name}" == *a* ]]',
                f"[[ ${name} != x ]]", "[ 1 -lt 2 ]", f'! [ -n "${name}" ]',
            )
        )  # fmt: skip

    def word(self) -> str:
        return "".join(self.atom() for _ in range(self.random.choice((1, 1, 2))))

    def atom(self) -> str:
        name = self.random.choice(NAMES)
        return self.random.choice(
            (
                "x", "--z", "1", "a=b", "k:v", "'a b'", "'{\"m\":1}'", "'$A'", "'\"'", "'\\'", '"a $A"', '"${B}x"',
                '"\\"q\\""', '"$C$C"',
                '"{\\"m\\":\\"$A\\"}"', '"`echo hi`"', '"$(echo "$B")"', '"a\'b"', f"${{{name}}}",
                f'"${{{name}}}"', f"${{{name}:-d}}", f'${{{name}:-"e f"}}', '${U:-"e f"}', f"${{U:-${name}}}",
                f"${{{name}:+d}}", f'${{{name}:+"e f"}}', f"$(echo ${{{name}}})",
                f"$((1+{self.random.randint(0, 5)}*2))",
                '"${ARR[@]}"', '"$@"', '"${1}"', '"${#ARR[@]}"',
            )
        )  # fmt: skip


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize("group", range(8))
def test_scripts_pass_the_words_that_bash_passes(group: int) -> None:
    for seed in range(group * 20, group * 20 + 20):
        text = Script(seed).text()
        done = subprocess.run([str(BASH), "-f", "-c", PRINT + text], capture_output=True, text=True, check=False)
        expected = [call.split("\0")[:-1] for call in done.stdout.split("\n\0")[:-1]]
        assert words(f"#!/bin/bash\n{text}") == expected, text


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize(
    "text",
    [
        "e {p,q}x '{a,b}'",
        'e ${U:-\'{"method": "ngram", "k": 5}\'}',
        "f() {\n  e \"$@\" $#\n}\nf a 'b c'",
        'function f { e "$1"; shift; e "$1"; }\nf a b',
        "for k in 1 2; do for j in a; do e $k$j; done; done",
        "case ab in (a*) e yes;; *) e no;; esac",
        "case 'x y' in\n  x*|z)\n    e first\n    ;;\n  *)\n    e second\nesac\ne after",
        "A=1\n[ $A = 1 ] &&\n  e one ||\n  e two",
        "if false_command_that_is_unknown_here 2>/dev/null; then :; fi\ne x",
        "cat > /dev/null <<EOF\n e no\nEOF\ne yes",
    ],
)
def test_these_scripts_pass_the_words_that_bash_passes(text: str) -> None:
    done = subprocess.run([str(BASH), "-f", "-c", PRINT + text], capture_output=True, text=True, check=False)
    expected = [call.split("\0")[:-1] for call in done.stdout.split("\n\0")[:-1]]
    assert words(text) == expected


@pytest.mark.skipif(BASH is None, reason="bash is not here")
def test_parts_cut_off_and_replaced_are_those_of_bash() -> None:
    rng = random.Random(5)
    lines = []
    for _ in range(300):
        value = "".join(rng.choice("ab/.-") for _ in range(rng.randint(0, 7)))
        pattern = "".join(rng.choice("ab/.-*?") for _ in range(rng.randint(1, 3))).replace("/", "\\/")
        kind = rng.choice(("#", "##", "%", "%%", "/", "//", "/#", "/%", "^^", ",,", ":"))
        more = {"^^": "", ",,": "", ":": f"{rng.randint(0, 4)}:{rng.randint(0, 3)}"}
        operand = more.get(kind, pattern + (rng.choice(("/X", "/", "/a b")) if kind[0] == "/" else ""))
        lines.append(f"V='{value}'\ne \"${{V{kind}{operand}}}\"")
    script = "\n".join(lines)
    assert BASH is not None
    run = subprocess.run([BASH, "-c", PRINT + script], capture_output=True, text=True, check=True)
    expected = [[word for word in line.split("\0") if word] for line in run.stdout.split("\n\0")[:-1]]
    assert [[word for word in call if word] for call in words(script)] == expected
