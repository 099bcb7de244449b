"""The console examples of the pages: found, run as a reader would, and compared with what the page shows.

Every block of a page that holds `$ draftcast ...` is one of three, and the line above it says which:

- `<!-- generated: run draftcast ... -->`: written by `make docs`, compared by the tests;
- nothing: written by hand, run by the tests and compared; a line `...` stands for lines that are left out;
- `<!-- not run: REASON -->`: needs a server or a restart. Its commands are checked against the options that exist, and
  its files must exist, but for those that `<!-- not run: REASON | yours: a.toml b.json -->` names as the reader's own.

The commands of one page run one after the other in one folder that holds what a clone holds, so that a later one finds
the files that an earlier one wrote.
"""

import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path

import click
from click.testing import CliRunner, Result

from draftcast.cli import cli

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PAGES = tuple(sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")]))
GENERATED = re.compile(r"(<!-- generated: (?P<name>[^\n]+) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)
WIDTH = "100"  # columns of generated outputs; 80, as in a pipe, of those that are written by hand
OMITTED = "..."
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_TOLERANCE = 0.02  # of a figure: random numbers and sums differ in the last digits between machines
_EITHER = re.compile(
    r"(?P<open><!-- generated: (?P<name>[^\n]+) -->\n)(?P<body>.*?)<!-- end -->"
    r"|(?:<!-- not run: (?P<reason>[^\n]+) -->\n+)?^```(?P<language>\w+)\n(?P<code>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
_DECORATION = re.compile(r"[─█▒▁▂▃▄▅▆▇]+")
_YOURS = " | yours: "
_FILE = re.compile(r"[\w./*-]+\.(?:toml|csv|json|jsonl|txt|log|sse|service|html)")
_DAY = "2026-01-31"  # in place of the day on which an output was made
_RECORDED_AT = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?Z?)?")


@dataclass(frozen=True)
class Example:
    """One command of a page, without the prompt, and the lines that the page shows below it."""

    command: str
    shown: tuple[str, ...]
    settings: tuple[tuple[str, str], ...] | None = None  # of a generated block; None: written by hand
    reason: str = ""  # why it is not run; "" where it is
    yours: tuple[str, ...] = ()  # files that only the reader has

    @property
    def is_draftcast(self) -> bool:
        """Whether it is a command line of this program, not of `make` or another one."""
        return self.command.startswith("draftcast ")

    def fault(self) -> str:
        """What is wrong with it now: "" where the program does what the page shows."""
        if self.reason:
            parse(self.command)
            return ""
        if self.settings is not None:
            return difference(self.shown, cut_output(self.command, dict(self.settings)))
        result = run(self.command, "80" if self.shown else WIDTH)
        fails = any(line.startswith("Error:") for line in self.shown)
        if bool(result.exit_code) is not fails:
            return f"exit code {result.exit_code}: {result.stderr.strip()}"
        if not self.shown:  # a command without what it prints
            return ""
        return difference(self.shown, result.stdout) and difference(self.shown, result.output)


def examples(text: str) -> Iterator[Example]:
    """The commands of all console blocks, in the order of the page."""
    for block in _EITHER.finditer(text):
        if block["name"] is not None:
            if block["name"].startswith("run "):
                yield _generated(block["name"].removeprefix("run "), block["body"])
            continue
        reason, _, yours = (block["reason"] or "").partition(_YOURS)
        if block["language"] in ("console", "sh"):
            yield from _commands(block["code"], reason, tuple(yours.split()))


def _generated(name: str, body: str) -> Example:
    command, settings = split_name(name)
    return Example(command, tuple(body.splitlines()[2:-1]), tuple(settings.items()))


def split_name(name: str) -> tuple[str, dict[str, str]]:
    """The command of a generated block, and its settings: before, from, exits, notes."""
    command, *rest = name.split(" | ")
    return command, {key: value for key, _, value in (part.partition(" ") for part in rest)}


def cut_output(command: str, settings: Mapping[str, str]) -> str:
    """What the command prints, between the lines that the settings name; `notes` are those of stderr too."""
    began = datetime.now(UTC)
    result = run(command, WIDTH)
    if result.exit_code != int(settings.get("exits", "0")):
        raise SystemExit(f"{command}: exit code {result.exit_code}: {result.output.strip()}")
    text = (result.output if "notes" in settings else result.stdout).replace(str(Path.cwd()), "/home/me/draftcast")
    lines = [line.rstrip() for line in _without_now(text, began).rstrip().splitlines()]
    first = _line(lines, settings.get("from"), 0)
    last = _line(lines, settings.get("before"), len(lines))
    shown = lines[first:last]
    return "\n".join([*[OMITTED] * (first > 0), *shown, *[OMITTED] * (last < len(lines))])


def _without_now(text: str, began: datetime) -> str:
    """`text` with the days of the run itself replaced by one that never changes; days that are facts are kept."""
    for day in {f"{moment:%Y-%m-%d}" for moment in (began, datetime.now(UTC))}:
        text = re.sub(rf"{day}(?:([ T])\d\d:\d\d(:\d\d)?)?", _fixed_moment, text)
    return text


def _fixed_moment(found: re.Match[str]) -> str:
    return _DAY + (f"{found[1]}12:00" if found[1] else "") + (":00" if found[2] else "")


def _line(lines: Sequence[str], start: str | None, default: int) -> int:
    return default if start is None else next((i for i, line in enumerate(lines) if line.startswith(start)), default)


def _commands(body: str, reason: str, yours: tuple[str, ...]) -> Iterator[Example]:
    """Prompts begin with `$ `; a command goes on behind a backslash; a remark stands behind ` # `."""
    command, shown = "", list[str]()
    for line in body.replace("\\\n", "").splitlines():
        if not line.startswith("$ "):
            shown.append(line)
            continue
        if command:
            yield Example(command, tuple(shown), None, reason, yours)
        command, shown = re.sub(r"\s+", " ", line[2:]).partition(" # ")[0].strip(), []
    if command:
        yield Example(command, tuple(shown), None, reason, yours)


@contextmanager
def clone() -> Iterator[Path]:
    """The working folder, meanwhile one that holds what a clone holds, as links, and in which examples may write."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="draftcast-docs-") as folder:
        for entry in ROOT.iterdir():
            if not entry.name.startswith(".") and entry.name not in ("out", "build", "dist"):
                Path(folder, entry.name).symlink_to(entry)
        Path(folder, "out").mkdir()
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


@cache
def _result(command: str, width: str) -> Result:
    """Of a command that writes nothing, so that it is the same wherever and however often it runs."""
    return _invoked(command, width)


def run(command: str, width: str) -> Result:
    """What the command does in the working folder, as on a terminal of that width without colour."""
    return (_invoked if _touches_files(command) else _result)(command, width)


def _touches_files(command: str) -> bool:
    """Whether files of the working folder take part, which differ from one folder to the next."""
    return bool(re.search(r" (-o|--\w*(ledger|record|report|plots|trace|records|profile|acceptance))\b|out/", command))


def _invoked(command: str, width: str) -> Result:
    nowhere = str(Path.cwd() / "out" / "home")  # nobody's ledger
    environment = {"COLUMNS": width, "NO_COLOR": "1", "XDG_DATA_HOME": nowhere, "DRAFTCAST_LEDGER": None}
    return CliRunner().invoke(cli, _words(command), prog_name="draftcast", env=environment)


def _words(command: str) -> list[str]:
    """The arguments as a shell would hand them over: patterns of file names filled in, the rest literally."""
    words = list[str]()
    for word in shlex.split(command)[1:]:
        found = sorted(str(path) for path in Path().glob(word)) if "*" in word and "=" not in word else []
        words += found or [word]
    return words


def parse(command: str) -> None:
    """Reads the options of a command that is not run; `click.UsageError` for one that does not exist."""
    words = _words(command)
    with cli.make_context("draftcast", list(words), resilient_parsing=False) as context:
        found, rest = cli.get_command(context, words[0]), words[1:]
        assert found is not None, command
        while isinstance(found, click.Group):
            found, rest = found.get_command(context, rest[0]), rest[1:]
            assert found is not None, command
        found.make_context(found.name, rest, parent=context)


def missing_files(example: Example, written: Sequence[str] = ()) -> list[str]:
    """The files that a command names, and that are neither in a clone, nor written earlier, nor the reader's."""
    words = _words(example.command)
    outputs = {after for word, after in pairwise(words) if word in _OUTPUTS}
    named = {word for word in words if _FILE.fullmatch(word)} - outputs - set(written) - set(example.yours)
    return sorted(name for name in named if not (ROOT / name).exists())


_OUTPUTS = ("-o", "--output", "--outputs", "--save-run", "--ledger", "--trace", "--records", "--report")


def outputs_of(example: Example) -> list[str]:
    """The files that a command writes."""
    words = _words(example.command)
    return [after for word, after in pairwise(words) if word in _OUTPUTS]


def difference(shown: Sequence[str], printed: str) -> str:
    """The first word of the page that the program does not print, with its surroundings; "" where all is there."""
    have = _tokens(printed)
    position, anchored = 0, True
    for segment in _segments(shown):
        wanted = _tokens("\n".join(segment))
        starts = [position] if anchored else range(position, len(have) - len(wanted) + 1)
        best = 0
        for start in starts:
            same = _agreeing(wanted, have[start:])
            best = max(best, same)
            if same == len(wanted):
                position = start + same
                break
        else:
            return f"{' '.join(wanted[max(0, best - 6) : best])} >>> {' '.join(wanted[best : best + 6])}"
        anchored = False
    if shown and shown[-1] != OMITTED and position < len(have):
        return f"more is printed: {' '.join(have[position : position + 8])}"
    return ""


def _segments(shown: Sequence[str]) -> list[list[str]]:
    """The lines between the marks of omission; the first segment stands at the start, also where it is empty."""
    segments: list[list[str]] = [[]]
    for line in shown:
        if line.strip() == OMITTED:
            segments.append([])
        else:
            segments[-1].append(line)
    return segments


def _tokens(text: str) -> list[str]:
    """The words of a text, wherever its lines break, without rules and bars; points in time all alike."""
    return _DECORATION.sub(" ", _RECORDED_AT.sub("DATE", text)).split()


def _agreeing(wanted: Sequence[str], have: Sequence[str]) -> int:
    """How many words agree from the start on."""
    for number, (one, other) in enumerate(zip(wanted, have, strict=False)):
        if not _agree(one, other):
            return number
    return min(len(wanted), len(have))


def _agree(one: str, other: str) -> bool:
    """Whether two words are the same, or the same but for the last digits of their figures."""
    if one == other:
        return True
    if NUMBER.sub("0", one) != NUMBER.sub("0", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(_close(*(figure.replace(",", "") for figure in pair)) for pair in pairs)


def _close(one: str, other: str) -> bool:
    last_digit = max(10.0 ** -len(figure.partition(".")[2]) for figure in (one, other))
    return abs(float(one) - float(other)) <= max(1.01 * last_digit, _TOLERANCE * abs(float(one)))
