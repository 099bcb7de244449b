"""`draftcast allreduce` for a human reader."""

from collections.abc import Mapping
from typing import Any

from draftcast.render.numbers import microseconds, significant, whole
from draftcast.render.page import Page
from hwmodel.units import GB


def render(result: Mapping[str, Any], page: Page) -> None:
    """The curve as a table, with where it comes from."""
    inputs = result["inputs"]
    where = f" on {inputs['num_gpus']} x {inputs['gpu']} ({inputs['interconnect']})" if inputs["gpu"] else ""
    page.headline(f"One AllReduce{where}. Source: {result['source']}")
    rows = [
        (whole(point["bytes"]), microseconds(point["time_s"]), _busbw(point), point["algorithm"])
        for point in result["curve"]
    ]
    page.table(("bytes", "time us", "bus GB/s", "algorithm"), rows)


def _busbw(point: Mapping[str, Any]) -> str:
    rate = point.get("busbw_bytes_per_s")
    return significant(rate / GB if rate is not None else None)
