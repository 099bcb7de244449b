import re
from pathlib import Path

import pytest

from validate.launch.inspection import inspect_launch

CHECKOUT = Path(__file__).parent.parent
PAGE = (CHECKOUT / "docs" / "inspect.md").read_text(encoding="utf-8")
SOURCES = [
    *sorted((CHECKOUT / "validate" / "launch").glob("*.py")),
    CHECKOUT / "hwmodel" / "engine" / "clients.py",
    CHECKOUT / "hwmodel" / "engine" / "methods.py",
]
WRITTEN = (
    r'(?:Finding\(|add\()\s*(?:[\w ]+|"\w+"|WARNING if near else ERROR),\s*f?"([a-z0-9{}\-]+)"',
    r'(?:MalformedSourceError|_warning|_info)\(\s*"([a-z0-9\-]+)"',
    r'^\s+"(json-[a-z\-]+)",$',
    r'(?:Reading\(\s*None,|return) "(json-[a-z\-]+)"',
    r'^UNREAD = "([a-z\-]+)"',
)


def codes_of_the_program() -> set[str]:
    found = set()
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        found |= {match[1] for pattern in WRITTEN for match in re.finditer(pattern, text, re.MULTILINE)}
    return {code.replace("{key}", key) for code in found for key in (("command", "args") if "{" in code else ("",))}


def codes_of_the_page() -> set[str]:
    tables = PAGE[PAGE.index("## Findings") : PAGE.index("## Limits")]
    return set(re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)+)`", tables))


def test_the_page_lists_exactly_the_codes_that_the_program_knows() -> None:
    known = codes_of_the_program()
    assert len(known) > 100  # the patterns still find them
    assert codes_of_the_page() - known == set()
    assert known - codes_of_the_page() == set()


@pytest.mark.parametrize(("name", "works"), [("vllm", True), ("vllm-ngram", True), ("vllm-ngram-broken", False)])
def test_the_example_units_do_what_the_page_says(name: str, works: bool) -> None:
    report = inspect_launch(CHECKOUT / "examples" / "launch" / f"{name}.service")
    assert (not [finding for finding in report["findings"] if finding["severity"] == "error"]) is works
