"""Specifications drawn by Vega-Lite inside this process: no browser, no network. Needs the extra `report`."""

import importlib
from typing import Any

from hwmodel.extras import missing_extra
from validate.report.chart import Chart, Spec
from validate.report.svg import cleaned

PACKAGE = "vl_convert"
PRINT_SCALE = 3.0  # 2,100 pixels: 300 dpi over the width of a page
_TITLE_HEIGHT, _LINE_HEIGHT = 50, 15  # pixels, the wider margin included
LANGUAGE = "6.4"  # the Vega-Lite that draws: the same input gives the same bytes until this line changes


def require_library() -> None:
    """`InputError` that names the next step where the drawing library is not installed, or does not run here."""
    try:
        importlib.import_module(PACKAGE)
    except ImportError as error:
        reason = (
            "which is not installed" if isinstance(error, ModuleNotFoundError) else f"which does not load ({error})"
        )
        raise missing_extra("report", "a chart", "leave out the report and the plots", reason) from error


def inline_svg(spec: Spec, prefix: str, alt: str) -> str:
    """The drawing as an SVG element for a page; `prefix` keeps its ids apart from those of others."""
    return cleaned(_svg(spec), prefix, alt)


def standalone_svg(chart: Chart) -> str:
    """The drawing as an SVG file of its own, with its title and on white."""
    return cleaned(_svg(_titled(chart)), "", chart.alt, standalone=True)


def png(chart: Chart) -> bytes:
    """The drawing as a PNG file of its own, with its title and on white, fit for print."""
    import vl_convert

    return bytes(
        vl_convert.vegalite_to_png(_titled(chart), vl_version=LANGUAGE, scale=PRINT_SCALE, allowed_base_urls=[])
    )


def _svg(spec: Spec) -> str:
    import vl_convert

    return str(vl_convert.vegalite_to_svg(spec, vl_version=LANGUAGE, allowed_base_urls=[]))


def _titled(chart: Chart) -> dict[str, Any]:
    """The wide drawing with title and finding above it, on white."""
    config = {**chart.wide["config"], "background": "white"}
    text = chart.title + (f": {chart.label}" if chart.label else "")
    below = _lines(chart.finding)
    height = chart.wide["height"] + _TITLE_HEIGHT + _LINE_HEIGHT * len(below)
    title = {"text": text, "subtitle": below, "offset": 12}
    return {**chart.wide, "config": config, "title": title, "padding": 12, "height": height}


def _lines(text: str, width: int = 105) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width) or [""]
