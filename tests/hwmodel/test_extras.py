"""An optional package that is missing: the next step for everybody, however draftcast came here."""

import configparser
import re
from pathlib import Path

import pytest

from hwmodel.extras import PACKAGES, missing_extra

SETUP = Path(__file__).parent.parent.parent / "setup.cfg"


def test_every_extra_of_the_distribution_is_known_with_its_package() -> None:
    parser = configparser.ConfigParser()
    parser.read(SETUP, encoding="utf-8")
    extras = {name: text.split() for name, text in parser["options.extras_require"].items() if name != "dev"}
    assert {name: words[0] for name, words in extras.items()} == dict(PACKAGES)


@pytest.mark.parametrize("extra", PACKAGES)
def test_the_next_step_is_there_for_pip_pipx_and_uv(extra: str) -> None:
    text = str(missing_extra(extra, "--x", "leave it out"))
    package = re.escape(PACKAGES[extra])
    assert text.startswith(f"--x needs the package {PACKAGES[extra]}, which is not installed; next: ")
    assert f"pip install 'draftcast[{extra}]'" in text
    assert re.search(rf"pipx inject draftcast {package}\b", text)
    assert re.search(rf"uv tool install --force --with {package} ", text)
    assert text.endswith("; or leave it out")
