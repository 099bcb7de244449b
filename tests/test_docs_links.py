"""Links lead somewhere, examples in Python do what they show, and figures that are told twice agree."""

import doctest
import re
from pathlib import Path

import click
import pytest
from page_examples import GENERATED, PAGES, ROOT, clone

from draftcast.cli import cli

TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in PAGES}
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors that a Git host gives to the headings, repeated ones numbered."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if name in found else name)
        found[name] = found.get(name, 0) + 1
    return names


def broken(page: str, text: str) -> list[str]:
    """The relative links of a page that lead to no file or no heading."""
    place, faults = ROOT / page, []
    for link in LINK.findall(CODE.sub(lambda code: code[0] if "](" in code[0] else "", text)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (place.parent / file).resolve() if file else place
        if not target.exists() or (anchor and anchor not in anchors(target)):
            faults.append(link)
    return faults


@pytest.mark.parametrize("page", TEXTS)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: str) -> None:
    assert broken(page, GENERATED.sub("", TEXTS[page])) == []


def test_links_to_nothing_are_found() -> None:
    assert broken("docs/guide.md", "[a](none.md) [b](model.md#none) [c](#none) [d](model.md#experts)") == [
        "none.md",
        "model.md#none",
        "#none",
    ]


def test_every_page_of_docs_is_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = [link.partition("#")[0] for link in LINK.findall(page.read_text(encoding="utf-8")) if ":" not in link]
        waiting += [(page.parent / link).resolve() for link in links if link]
    assert set(PAGES) - seen == set()


PYTHON = [
    (page, number, code)
    for page, text in TEXTS.items()
    for number, (reason, code) in enumerate(
        re.findall(r"(<!-- not run: [^\n]+ -->\n+)?^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    )
    if not reason
]


@pytest.mark.parametrize(("page", "number", "code"), PYTHON, ids=[f"{page} {number}" for page, number, _ in PYTHON])
def test_every_python_example_does_what_it_shows(page: str, number: int, code: str) -> None:
    assert ">>> " in code, "an example is wanted, or a line `<!-- not run: REASON -->` above"
    example = doctest.DocTestParser().get_doctest(code, {}, page, page, 0)
    with clone():
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        results = doctest.DocTestRunner(optionflags=flags).run(example)
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize("page", ["README.md", "docs/limits.md"])
def test_figures_of_accuracy_are_those_of_the_page_that_the_backtest_writes(page: str) -> None:
    table = re.findall(r"^\| ([^|]+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", TEXTS["docs/accuracy.md"], re.M)
    of = {name: figures for name, *figures in table}
    text = " ".join(TEXTS[page].split())
    rows, median, p90, sign = of["informed"]
    assert all(f"{figure} %" in text for figure in (median, p90, sign))
    assert f"{rows} published speculative runs" in text
    other = "(a) log-log interpolation" if page == "README.md" else "informed, source left out"
    assert all(f"{figure} %" in text for figure in of[other][1:3])


def options_of(words: list[str]) -> tuple[str, set[str]]:
    """(the command that the words name, its options and those of the group); "" for a command that does not exist."""
    command, path, context = cli, "draftcast", click.Context(cli)
    options: set[str] = {"--help", "-h", "--version"}
    for word in words:
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if isinstance(command, click.Group) and found is None and not word.startswith("-"):
            return "", options
        if found is None:
            break
        command, path = found, f"{path} {word}"
        options |= {name for option in found.params for name in (*option.opts, *option.secondary_opts)}
    return path, options


def unknown_words(span: str) -> list[str]:
    """The command or the options that a command line in running text names and the program lacks."""
    words = re.findall(r'"[^"]*"|[^\s|]+', span)[1:]
    path, options = options_of(words)
    named = {word.partition("=")[0] for word in words[: words.index("--") if "--" in words else None]}
    return [span] * (not path) + sorted(word for word in named if re.match(r"--?[a-z]", word) and word not in options)


@pytest.mark.parametrize("page", sorted(TEXTS.keys() - {"docs/cli.md"}))
def test_commands_in_running_text_exist_with_their_options(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", TEXTS[page], flags=re.DOTALL | re.MULTILINE)
    spans = [" ".join(span.split()) for span in re.findall(r"`(draftcast (?!COMMAND)[^`]+)`", text)]
    assert {span: unknown_words(span) for span in spans if unknown_words(span)} == {}


def test_a_command_in_running_text_that_does_not_exist_is_found() -> None:
    assert unknown_words("draftcast chose a.toml") == ["draftcast chose a.toml"]
    assert unknown_words("draftcast choose a.toml --jobs 4 -c 1 --set a=1") == ["--jobs"]
    assert unknown_words("draftcast ledger list --last 3 --json") == []
