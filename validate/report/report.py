"""The charts of `draftcast report`: those of `choose`, finer over load, and what stands behind them."""

from validate.report import calibrate, choose, simulate
from validate.report.chart import Chart, Json
from validate.report.curves import acceptance_charts, allreduce_charts, experts_charts
from validate.report.parts import parts_over_load


def charts(result: Json, details: Json) -> list[Chart]:
    """All charts of a deployment, in the order in which a reader asks.

    The result is that of `choose` with, besides, `curves` (one draft length over load), `calibration` and `simulation`,
    each null where there is none.
    """
    curves = result["curves"]
    k, cells = curves["num_speculative_tokens"], curves["cells"]
    found = [chart for chart in choose.charts(result, details) if chart.group != "what-users-see"]
    loads = set(result["inputs"]["concurrency"])
    if k:
        fine = choose.speedup_curve(cells, k, selected=True)
        found = [fine if chart.name == fine.name else chart for chart in found]
        arms: dict[str, list[Json]] = {
            arm: [{**cell[key], "concurrency": cell["concurrency"]} for cell in cells] for arm, key in _ARMS
        }
        found += choose.what_users_see(arms, k)
        found += parts_over_load(cells, sorted(loads))
    found += [*acceptance_charts(curves), *experts_charts(curves), *allreduce_charts(curves)]
    if result.get("calibration"):
        found += calibrate.charts(result["calibration"], {})
    if result.get("simulation"):
        found += simulate.charts(result["simulation"], {})
    return found


_ARMS = (("baseline", "baseline"), ("with drafts", "speculative"))
