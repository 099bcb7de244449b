"""Where pages and plots are written: whole files under fixed names, checked before anything is computed."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from hwmodel.errors import InputError
from simulator.files import check_outputs, write_whole
from validate.report.chart import Chart, Document
from validate.report.draw import png, require_library, standalone_svg
from validate.report.html import page

REPORT_ENDINGS = (".html", ".htm")


def check_destinations(report: str | None, plots: str | None, inputs: Iterable[str]) -> None:
    """`InputError` before the work where the library is missing or a destination cannot be written."""
    require_library()
    if report is not None and not report.lower().endswith(REPORT_ENDINGS):
        raise InputError(f"the report: got {report}, allowed: a file that ends in .html")
    check_outputs({"the report": report}, inputs)
    if plots is None:
        return
    place = Path(plots)
    if not plots.strip() or "\0" in plots or (place.exists() and not place.is_dir()):
        raise InputError(f"--plots: got {plots}, allowed: a folder, new or existing")
    if report is not None and place.resolve() == Path(report).resolve():
        raise InputError(f"--plots: {plots} is also the report; allowed: a folder of its own")
    if not place.resolve().parent.is_dir():
        raise InputError(f"--plots: cannot make {plots}: no such folder as its parent; allowed: a path in one")


def write_page(document: Document, path: str) -> None:
    """Writes the page; it appears under its name only when it is complete."""
    write_whole(path, page(document).encode())


def write_plots(charts: Sequence[Chart], folder: str, stem: str) -> list[str]:
    """Writes each chart as PNG and SVG into `folder`, which is made where it is not there; the names of the files.

    Files of these names that are there already are replaced, as by every other output of draftcast; others are kept.
    """
    place = Path(folder)
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make {folder}: {error.strerror}; allowed: a folder, new or existing") from error
    paths = {
        str(place / f"{stem}-{chart.name}.{ending}"): (chart, ending) for chart in charts for ending in ("svg", "png")
    }
    check_outputs({f"--plots, {Path(path).name}": path for path in paths})
    for path, (chart, ending) in paths.items():
        write_whole(path, png(chart) if ending == "png" else standalone_svg(chart).encode())
    return list(paths)
