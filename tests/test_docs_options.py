import re
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent
PAGE = (CHECKOUT / "docs" / "options.md").read_text(encoding="utf-8")
CITED = re.compile(r"docs/options\.md, eq\. ([A-Z]\d)(?: to ([A-Z]\d))?")


def cited_equations() -> set[str]:
    found: set[str] = set()
    for path in [*(CHECKOUT / "simulator").rglob("*.py"), *(CHECKOUT / "hwmodel").rglob("*.py")]:
        for first, last in CITED.findall(path.read_text(encoding="utf-8")):
            numbers = range(int(first[1]), int((last or first)[1]) + 1)
            found |= {f"{first[0]}{number}" for number in numbers}
    return found


def test_every_equation_that_the_code_cites_is_on_the_page() -> None:
    cited = cited_equations()
    assert len(cited) >= 8
    headings = set(re.findall(r"^### ([A-Z]\d):", PAGE, re.MULTILINE))
    assert cited <= headings


def test_constants_on_the_page_are_those_of_the_data() -> None:
    from simulator.acceptance_priors import priors
    from simulator.published_drafters import drafter_facts

    trees = priors()["tree"]
    for value in (trees["3"]["at_zero"], trees["3"]["per_rate"], trees["4"]["at_zero"], trees["4"]["per_rate"]):
        assert f"{value:g}" in PAGE
    volume = drafter_facts()["data_volume"]
    assert f"{volume['logit_per_ln']:g} ln(samples / {volume['reference_samples']:,})" in PAGE
    assert f"{drafter_facts()['site']['pair_logit_sd']:g}^2" in PAGE
