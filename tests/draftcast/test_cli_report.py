"""`--report` and `--plots` from the outside: what is written, what is refused, what costs nothing."""

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from report_pages import VIEWS, arguments, page_option

Run = Callable[..., Result]
PROGRAM = (sys.executable, "-c", "import sys; from draftcast.start import main; sys.exit(main())")
CHECKOUT = Path(__file__).parent.parent.parent

SHORT = ("-k", "0-3", "--draws", "200")


class Elements(HTMLParser):
    """The tags of a page with their attributes, and the text of those that were asked for."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def embedded(page: str) -> dict[str, Any]:
    """The JSON result that the page holds."""
    found = re.search(r'<script type="application/json" id="result">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    result: dict[str, Any] = json.loads(found[1])
    return result


def test_a_page_holds_the_same_json_that_the_command_prints(run: Run, small: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = run("choose", small, *SHORT, "--json", "--report", page)
    assert result.exit_code == 0
    assert embedded(page.read_text(encoding="utf-8")) == json.loads(result.stdout)
    assert f"note: report in {page}" in result.stderr


@pytest.mark.parametrize("view", VIEWS)
def test_every_command_prints_the_same_with_a_page_and_the_page_holds_it(
    run: Run, tmp_path: Path, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, page = [*arguments(view, tmp_path), "--json"], tmp_path / "page.html"
    reported = run(*asked, page_option(view), page)
    assert reported.exit_code == 0
    assert embedded(page.read_text(encoding="utf-8")) == json.loads(reported.stdout)
    if view != "report":
        assert run(*asked).stdout == reported.stdout


@pytest.mark.parametrize("view", VIEWS)
def test_pages_are_small(run: Run, tmp_path: Path, view: str) -> None:
    page = tmp_path / "page.html"
    run(*arguments(view, tmp_path), page_option(view), page)
    assert page.stat().st_size < 600_000


def test_stdout_is_the_same_with_a_report_and_without(run: Run, small: Path, tmp_path: Path) -> None:
    plain = run("choose", small, *SHORT)
    reported = run("choose", small, *SHORT, "--report", tmp_path / "page.html")
    assert reported.stdout == plain.stdout


def test_the_page_needs_nothing_from_anywhere(run: Run, small: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run("choose", small, *SHORT, "--report", page)
    elements = Elements(page.read_text(encoding="utf-8"))
    assert elements.count("svg") > 4
    for tag, attributes in elements.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "use", "image", "a", "form"}
        assert not {"src", "href", "style", "action", "xlink:href"} & attributes.keys()
        assert not [name for name in attributes if name.startswith("on")]
    policy = next(a["content"] for tag, a in elements.tags if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_the_same_input_gives_the_same_bytes_but_for_the_date(run: Run, small: Path, tmp_path: Path) -> None:
    pages = []
    for number, time in enumerate(("0", "86400")):
        path = tmp_path / f"{number}.html"
        os.environ["SOURCE_DATE_EPOCH"] = time
        try:
            run("choose", small, *SHORT, "--report", path)
        finally:
            del os.environ["SOURCE_DATE_EPOCH"]
        pages.append(path.read_text(encoding="utf-8"))
    assert "<time>1970-01-01 00:00 UTC</time>" in pages[0]
    assert pages[0] == pages[1].replace("1970-01-02", "1970-01-01")


def test_plots_are_png_and_svg_under_fixed_names(run: Run, small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plots"
    result = run("choose", small, *SHORT, "--plots", folder)
    assert result.exit_code == 0
    names = sorted(path.name for path in folder.iterdir())
    assert "choose-speedup-heat-map.png" in names
    assert {name.rpartition(".")[0] for name in names if name.endswith(".png")} == {
        name.rpartition(".")[0] for name in names if name.endswith(".svg")
    }
    header = (folder / "choose-speedup-heat-map.png").read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    width, _ = struct.unpack(">II", header[16:])
    assert width == 2100  # 300 dpi over 178 mm


def test_files_of_others_in_the_folder_of_plots_stay(run: Run, small: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.svg").write_text("mine", encoding="utf-8")
    run("choose", small, *SHORT, "--plots", tmp_path)
    assert (tmp_path / "mine.svg").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--report", "page.pdf"), "a file that ends in .html"),
        (("--report", "no/such/page.html"), "no such folder"),
        (("--plots", "small.toml"), "a folder, new or existing"),
        (("--plots", "no/such/folder"), "no such folder"),
        (("--plots", " "), "a folder, new or existing"),
    ],
)
def test_destinations_are_refused_before_anything_is_computed(
    run: Run, small: Path, options: tuple[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small.parent)
    result = run("choose", small, *options)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_report_never_overwrites_what_is_read(run: Run, small: Path, tmp_path: Path) -> None:
    written = small.read_text(encoding="utf-8")
    launch = tmp_path / "launch.html"  # a shell script, whatever its name says
    launch.write_text(written, encoding="utf-8")
    result = run("choose", launch, "--report", launch)
    assert result.exit_code == 1
    assert launch.read_text(encoding="utf-8") == written


def test_without_the_library_one_line_names_the_next_step(
    run: Run, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("validate.report.draw.PACKAGE", "no_such_package")
    result = run("choose", small, "--report", tmp_path / "page.html")
    assert result.exit_code == 1
    assert "pip install 'draftcast[report]'" in result.stderr
    assert "pipx inject draftcast vl-convert-python" in result.stderr
    assert "uv tool install --force --with vl-convert-python" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_without_a_report_nothing_of_it_is_imported(small: Path) -> None:
    code = (
        "import sys; from draftcast.cli import cli\n"
        f"cli.main(['choose', {str(small)!r}, '--draws', '200'], standalone_mode=False)\n"
        "bad = [m for m in sys.modules if m.startswith(('validate.report', 'vl_convert', 'xml.etree'))]\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


HOSTILE = '"></svg></script><script>window.broken=1</script><img src=x onerror="window.broken=1">\u2028{{7*7}}'


def test_names_from_outside_are_text_and_nothing_else(
    run: Run, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from draftcast import api
    from draftcast.output import show
    from draftcast.report_options import Destinations

    result = api.choose(api.load(small), num_speculative_tokens=(0, 1), num_draws=200).to_dict()
    result["inputs"]["deployment"]["model"]["config"] = HOSTILE
    result["recommendation"]["why"] = HOSTILE
    result["why"] = [HOSTILE]
    result["notes"] = [HOSTILE]
    for cell in result["grid"]:
        cell["limited_by"] = HOSTILE
    page = tmp_path / "page.html"
    monkeypatch.setattr("draftcast.output.destinations", lambda: Destinations(str(page), None))
    show(result, as_json=True, view="choose", details=lambda: {"shown": 1})
    text = page.read_text(encoding="utf-8")
    elements = Elements(text)
    assert elements.count("img") == 0
    assert elements.count("script") == 2  # the JSON and the page's own
    assert embedded(text)["recommendation"]["why"] == HOSTILE
    assert "\u2028" not in text


def test_a_page_is_written_also_where_the_reader_of_the_output_has_gone(small: Path, tmp_path: Path) -> None:
    page, plots = tmp_path / "page.html", tmp_path / "plots"
    for more in ((), ("--json",)):
        arguments = ["choose", str(small), "-k", "0-2", "--draws", "100", "--report", str(page), "--plots", str(plots)]
        with subprocess.Popen(
            [*PROGRAM, *arguments, *more], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=CHECKOUT
        ) as process:
            assert process.stdout is not None
            process.stdout.close()
            assert process.wait() != 0
        assert page.read_text(encoding="utf-8").endswith("</html>\n")
        assert list(plots.glob("*.svg"))
        page.unlink()


def test_a_note_is_said_once_in_the_json_and_on_the_page(run: Run, small: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    asked = ("--method", "mtp", "--model", "deepseek-v3-fp8", "--gpu", "h200", "--num-gpus", "8")
    result = run("choose", small, *asked, "--set", "engine.tensor_parallel_size=8", *SHORT, "--json", "--report", page)
    notes = json.loads(result.stdout)["notes"]
    assert any("re-run the same layers" in note for note in notes)
    assert len(notes) == len(set(notes))
    assert page.read_text(encoding="utf-8").count("<li>vLLM 0.16.0: 3 draft tokens with 1 MTP layer") == 1
