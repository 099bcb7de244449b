import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hwmodel.parameters import prior_table
from simulator.choose import choose
from simulator.deployment import known_keys, load_deployment
from simulator.predict import predict, whatif

CHECKOUT = Path(__file__).parent.parent
ROOMS = ("hwmodel", "simulator", "calibration", "validate", "draftcast")
REFERENCE = CHECKOUT / "examples" / "kimi-k2.5-8x-rtx-pro-6000.toml"
EQUATION = re.compile(r"\b[A-Z]\d\b")
CITATION = re.compile(
    r"docs/(model|guide)\.md,\s+(?:section (?:on )?)?(?:\"([^\"]+)\"|(eq\. [A-Z]\d)|((?:[^().`\n]|\([a-z]+\))+))"
)
SPEC = re.compile(r"\b(?:spec|specification),?(?: of)? (correction \d+|section \d+(?:\.\d+)?|hardware section \d+)")
GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)


@cache
def page(name: str) -> str:
    return (CHECKOUT / "docs" / name).read_text(encoding="utf-8")


def written(name: str) -> str:
    """The page without its generated blocks."""
    return GENERATED.sub("", page(name))


def headings(name: str) -> list[str]:
    code = re.sub(r"```.*?```", "", page(name), flags=re.DOTALL)
    return [match[1] for match in re.finditer(r"^#+ (.+)$", code, re.MULTILINE)]


@cache
def sources(*endings: str) -> str:
    """All files of the rooms with these endings, one after the other."""
    files = sorted(path for room in ROOMS for end in endings for path in (CHECKOUT / room).rglob(f"*.{end}"))
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def citations(name: str) -> Iterator[str]:
    for match in CITATION.finditer(sources("py")):
        if match[1] == name:
            yield (match[2] or match[3] or match[4]).strip()


def equations_of_the_page() -> list[str]:
    return [text.split(":")[0] for text in headings("model.md") if EQUATION.match(text)]


def test_every_equation_that_the_code_cites_is_in_the_page_once_and_the_page_has_no_other() -> None:
    cited = {text.removeprefix("eq. ") for text in citations("model") if text.startswith("eq. ")}
    assert len(cited) > 10
    assert sorted(equations_of_the_page()) == sorted(cited)


def test_every_section_that_the_code_cites_is_a_heading() -> None:
    cited = {text for text in citations("model") if not text.startswith("eq. ")}
    assert {"Serving", "Decision", "Experts", "kernels", "v(ctx)"} <= cited
    for text in cited:
        assert any(text.lower() in heading.lower() for heading in headings("model.md")), text
    for text in citations("guide"):
        assert text in headings("guide.md"), text


def test_every_equation_has_a_formula_a_source_of_its_numbers_and_a_place_in_the_code() -> None:
    for label in equations_of_the_page():
        body = re.split(rf"^### {label}: .*$", page("model.md"), flags=re.MULTILINE)[1]
        body = re.split(r"^##+ ", body, flags=re.MULTILINE)[0]
        assert "```text" in body, label
        assert "Code: " in body, label
        if label not in {"F1", "S1", "S2", "S3", "B1", "P1"}:  # definitions and algebra, without measured numbers
            assert "Source: " in body, label


def test_every_place_in_the_code_that_the_page_names_exists() -> None:
    places = re.findall(r"`((?:\w+/)+\w+\.py)`\s\(([^)]+)\)", page("model.md"))
    assert len(places) > 30
    for file, names in places:
        code = (CHECKOUT / file).read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^ *(?:(?:def|class) {name}\b|{name}\b.* = )", code, re.MULTILINE), f"{file}: {name}"


def test_every_reference_to_the_specification_in_a_source_is_a_heading_under_evidence() -> None:
    cited = set(SPEC.findall(sources("py", "toml")))
    assert "correction 5" in cited
    assert {f"spec {text}" for text in cited} <= set(headings("model.md"))


@pytest.mark.parametrize("name", prior_table())
def test_every_parameter_is_explained_where_it_is_used(name: str) -> None:
    assert f"`{name}`" in written("model.md")


def keys_of(value: Any) -> Iterator[str]:
    """Names of all keys of an answer; what stands under `inputs.deployment` and `vary` is the user's."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key not in {"deployment", "vary"}:
                yield from keys_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


def test_every_json_key_of_predict_choose_and_whatif_is_in_the_guide() -> None:
    deployment = load_deployment(REFERENCE)
    answers = [
        predict(deployment, num_draws=20).to_dict(),
        choose(deployment, num_speculative_tokens=(0, 2), concurrency=(1, 4), num_draws=20).to_dict(),
        whatif(deployment, {"engine.tensor_parallel_size": [8, 7]}, num_draws=20).to_dict(),
    ]
    json_chapter = page("guide.md").split("\n## JSON\n")[1].split("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", json_chapter))
    assert set(keys_of(answers)) - named == set()


def without_effect() -> list[str]:
    text = " ".join(written("guide.md").split())
    return re.findall(r"`([\w.]+)`", text.split("but without effect on")[1].split("and all of")[0])[3:]


OTHER_VALUES = {
    "workload.length_distribution": "lognormal",
    "workload.length_log_sd": "1.0",
    "workload.acceptance_time_correlation": "0.5",
    "objective.percentile": "50",
    "engine.block_size": "64",
}


def test_keys_that_the_guide_says_have_no_effect_have_none() -> None:
    assert without_effect() == list(OTHER_VALUES)
    costs = {key.key: "3" for key in known_keys() if key.key.startswith("costs.") and key.type.startswith("number")}
    usual = predict(load_deployment(REFERENCE), num_draws=50).to_dict()
    for key, value in (OTHER_VALUES | costs | {"costs.mfu": "0.3"}).items():
        changed = predict(load_deployment(REFERENCE, [f"{key}={value}"]), num_draws=50).to_dict()
        assert changed["inputs"] != usual["inputs"], key
        assert changed["speculative"]["parts_s"] == pytest.approx(usual["speculative"]["parts_s"], rel=0.02), key


def test_toml_examples_in_the_guide_are_valid_and_known() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", page("guide.md"), re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        tables = tomllib.loads(REFERENCE.read_text(encoding="utf-8")) | tomllib.loads(block)
        tables["speculation"] = {"method": "ngram", "num_speculative_tokens": 5} | tables["speculation"]
        assert json.dumps(load_deployment(tables).to_dict())


def test_acceptance_forms_in_the_guide_are_accepted_as_written() -> None:
    forms = re.findall(r"^\| `(\{ \w+ = [^`]+\})` \|", page("guide.md"), re.MULTILINE)
    assert len(forms) == 7
    for form in forms:
        if "..." not in form and "file.json" not in form:
            load_deployment(REFERENCE, ["speculation.method=eagle3", f"speculation.acceptance={form}"])
