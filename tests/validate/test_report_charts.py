"""Charts from results: every drawn value is one of the result, and odd results still draw."""

import itertools
import json
import math
import re
from typing import Any

import pytest

from validate.report import backtest, calibrate, choose, curves, heat, options, simulate, validate, whatif
from validate.report.chart import Chart
from validate.report.draw import inline_svg
from validate.report.theme import BASELINE, SPECULATIVE

Json = dict[str, Any]


def speedup(p50: float | None, spread: float = 0.1) -> Json:
    """Quantiles around a median; all None where it is None."""
    steps = {"p05": -2, "p10": -1.5, "p25": -1, "p50": 0, "p75": 1, "p90": 1.5, "p95": 2}
    return {name: None if p50 is None else p50 + step * spread for name, step in steps.items()}


def cell(k: int, load: int, p50: float | None, probability: float = 0.5) -> Json:
    """A cell of `choose`."""
    return {
        "num_speculative_tokens": k,
        "concurrency": load,
        "speedup": speedup(p50),
        "probability_faster": probability,
        "tpot_s": 0.01 * load / (p50 or 1.0),
        "ttft_s": 0.2,
        "throughput_tokens_per_s": 100.0 * load,
        "tokens_per_step": 1.5,
        "limited_by": "kv_cache",
    }


def choice(*cells: Json, picked: int = 1) -> Json:
    """A result of `choose`."""
    recommendation = {"num_speculative_tokens": picked, "best_if_enabled": picked}
    inputs = {"deployment": {"objective": {"min_probability_faster": 0.9}}}
    return {"inputs": inputs, "grid": list(cells), "recommendation": recommendation}


def named(charts: list[Chart], name: str) -> Chart:
    """The chart of that name."""
    return next(chart for chart in charts if chart.name == name)


def drawn(chart: Chart, *fields: str, narrow: bool = False) -> list[tuple[Any, ...]]:
    """The values of these fields in all rows of all layers that have them, each once."""
    spec = chart.narrow if narrow else chart.wide
    rows = [row for layer in spec["layer"] for row in layer["data"]["values"]]
    return list(dict.fromkeys(tuple(row[f] for f in fields) for row in rows if all(f in row for f in fields)))


GRID = (cell(0, 1, 1.0), cell(0, 8, 1.0), cell(1, 1, 1.3, 0.95), cell(1, 8, 0.8, 0.1))


def test_a_heat_map_writes_the_median_and_frames_what_is_sure() -> None:
    chart = named(choose.charts(choice(*GRID), {"shown": 1}), "speedup-heat-map")
    assert drawn(chart, "line", "column", "median", "sure") == [
        ("k = 0", "1", "1.00x", False),
        ("k = 0", "8", "1.00x", False),
        ("use k = 1", "1", "1.30x", True),
        ("use k = 1", "8", "0.80x", False),
    ]


def test_a_heat_map_has_its_values_in_the_table() -> None:
    chart = named(choose.charts(choice(*GRID), {"shown": 1}), "speedup-heat-map")
    assert [row[:3] for row in chart.table.rows] == [(0, 1, 1.0), (0, 8, 1.0), (1, 1, 1.3), (1, 8, 0.8)]


def test_a_speedup_that_is_not_defined_is_a_dash_and_no_colour() -> None:
    chart = named(choose.charts(choice(*GRID, cell(2, 1, None), cell(2, 8, None)), {"shown": 1}), "speedup-heat-map")
    assert ("k = 2", "1", "–", None) in drawn(chart, "line", "column", "median", "log2")
    assert inline_svg(chart.wide, "a", chart.alt)


def test_the_crossing_is_between_the_loads_on_either_side_of_one() -> None:
    chart = named(choose.charts(choice(*GRID), {"shown": 1}), "speedup-by-load-k1")
    assert "passes 1 between concurrency 1 and 8" in chart.finding
    assert drawn(chart, "load", "end") == [(1, 8)]


def test_a_curve_holds_every_load_with_its_band() -> None:
    chart = named(choose.charts(choice(*GRID), {"shown": 1}), "speedup-by-load-k1")
    assert drawn(chart, "load", "p05", "p50", "p95") == [(1, 1.1, 1.3, 1.5), (8, 0.6000000000000001, 0.8, 1.0)]


def test_one_load_alone_can_be_drawn() -> None:
    charts = choose.charts(choice(cell(0, 4, 1.0), cell(1, 4, 0.9)), {"shown": 1})
    assert "The median is slower at concurrency 4." in named(charts, "speedup-by-load-k1").finding
    for chart in charts:
        assert inline_svg(chart.wide, "a", chart.alt).startswith("<svg ")


def test_the_draft_length_in_question_is_the_selected_curve() -> None:
    charts = choose.charts(choice(*GRID, cell(2, 1, 1.0), cell(2, 8, 1.0)), {"shown": 2})
    assert [c.label for c in charts if c.group == "speedup-by-load" and c.selected] == ["k = 2"]


def test_a_grid_too_large_to_draw_is_thinned_and_stays_whole_in_the_table() -> None:
    cells = [cell(k, load, 1.0) for k in range(41) for load in range(1, 51)]
    charts = choose.charts(choice(*cells), {"shown": 7})
    chart = charts[0]
    assert len(chart.table.rows) == 41 * 50
    assert len(drawn(chart, "line", "column")) == 20 * 16
    assert "speedup-by-load-k7" in [c.name for c in charts]
    assert len([c for c in charts if c.group == "speedup-by-load"]) <= 9


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("label", ["k = 1", "a machine of another kind with drafts of its own"])
@pytest.mark.parametrize("most", [1.5, 12.0])
def test_figures_of_a_heat_map_do_not_touch_each_other(narrow: bool, label: str, most: float) -> None:
    cells = [heat.HeatCell(str(2**i), label, "", speedup(most), 0.5) for i in range(heat.MAX_COLUMNS)]
    svg = inline_svg(heat.heat_spec(cells, "load", 0.8, narrow=narrow), "a", "map")
    texts = re.findall(
        r'translate\(([0-9.]+),[0-9.]+\)" font-size="([0-9.]+)px" font-weight="bold"[^>]*>([0-9.]+x)<', svg
    )
    assert len(texts) > 1
    assert len(texts) == len(heat.drawn_columns(cells, narrow=narrow))
    for (left, size, text), (right, _, _) in itertools.pairwise(texts):
        assert float(right) - float(left) > 0.58 * float(size) * len(text)


def test_what_a_heat_map_leaves_out_is_said() -> None:
    many, few = ([cell(k, load, 1.0) for k in (0, 1) for load in range(1, loads)] for loads in (21, 4))
    assert (
        "Drawn are 16 of 20 concurrencies; the table has all." in choose.charts(choice(*many), {"shown": 1})[0].finding
    )
    assert "Drawn are" not in choose.charts(choice(*few), {"shown": 1})[0].finding


def test_a_phone_has_only_the_columns_whose_figures_fit() -> None:
    chart = choose.charts(choice(*(cell(k, load, 1.0) for k in (0, 1) for load in range(1, 21))), {"shown": 1})[0]
    columns = list(dict.fromkeys(column for column, _ in drawn(chart, "column", "median", narrow=True)))
    assert (columns[0], columns[-1], len(columns)) == ("1", "20", 9)


def test_nothing_is_recommended_on_a_heat_map_where_the_model_does_not_fit() -> None:
    unfit = {**choice(*GRID, picked=0), "memory": {"limited_by_baseline": "does_not_fit"}}
    chart = choose.charts(unfit, {"shown": 1})[0]
    assert ("k = 0", "1") in drawn(chart, "line", "column")
    assert '"use"' not in chart.finding


def arm(step_s: float, **parts_s: float) -> Json:
    """An arm of `predict`."""
    return {"step_s": step_s, "tpot_s": step_s, "throughput_tokens_per_s": 10.0, "parts_s": parts_s}


def what_if_row(vary: Json, p50: float) -> Json:
    """A row of `whatif`."""
    spec = {**arm(0.012, experts=0.008, drafter=0.004), "tokens_per_step": 1.5}
    base = arm(0.01, experts=0.01, drafter=0.0)
    return {"vary": vary, "speedup": speedup(p50), "probability_faster": 0.4, "baseline": base, "speculative": spec}


def test_what_if_draws_each_combination_and_leaves_out_what_cannot_be() -> None:
    rows = [what_if_row({"a.b": 1}, 0.9), {"vary": {"a.b": 2}, "error": "no"}, what_if_row({"a.b": 3}, 1.2)]
    charts = whatif.charts({"inputs": {}, "rows": rows}, {})
    assert drawn(named(charts, "speedups"), "label", "mid") == [("1", 0.9), ("3", 1.2)]
    assert "speedup-heat-map" not in [chart.name for chart in charts]


def test_two_varied_keys_make_a_heat_map() -> None:
    rows = [what_if_row({"a.b": b, "c.d": d}, 1.0) for b in (1, 2) for d in ("x", "y")]
    chart = named(whatif.charts({"inputs": {}, "rows": rows}, {}), "speedup-heat-map")
    assert drawn(chart, "line", "column") == [("1", "x"), ("1", "y"), ("2", "x"), ("2", "y")]


def test_values_that_are_called_the_same_have_places_of_their_own() -> None:
    values = [f"/a/very/long/folder/of/models/that/are/all/alike/{end}.json" for end in "abc"]
    rows = [what_if_row({"a.b": b, "c.d": d}, p50) for p50, b in ((0.9, 1), (1.2, 2)) for d in values]
    charts = whatif.charts({"inputs": {}, "rows": rows}, {})
    assert len(drawn(named(charts, "speedup-heat-map"), "line", "column")) == 6
    assert len(drawn(named(charts, "speedups"), "label")) == 6


def test_a_combination_that_does_not_fit_is_not_drawn_beside_those_that_do() -> None:
    unfit = what_if_row({"a.b": 2}, 1.9)
    unfit["baseline"]["limited_by"] = "does_not_fit"
    charts = whatif.charts({"inputs": {}, "rows": [what_if_row({"a.b": 1}, 0.9), unfit]}, {})
    assert drawn(named(charts, "speedups"), "label", "mid") == [("1", 0.9)]


def test_parts_of_more_combinations_than_are_drawn_are_said_to_be_the_first() -> None:
    def findings(count: int) -> list[str]:
        row = {
            "speedup": speedup(1.1),
            "probability_faster": 0.5,
            "baseline": arm(0.01, experts=0.01),
            "speculative": arm(0.012, experts=0.01),
        }
        rows = [{"vary": {"a": i}, **row} for i in range(count)]
        charts = whatif.charts({"inputs": {}, "rows": rows}, {})
        return [chart.finding for chart in charts if chart.name.startswith("step-parts")]

    assert not any("combinations" in finding for finding in findings(12))
    assert all(finding.endswith("The first 12 of 13 combinations are drawn.") for finding in findings(13))


def test_no_combination_no_chart() -> None:
    assert whatif.charts({"inputs": {}, "rows": [{"vary": {"a.b": 2}, "error": "no"}]}, {}) == []


def test_parts_of_a_step_are_in_ms_and_parts_that_neither_arm_has_are_left_out() -> None:
    base, spec = (
        arm(0.01, experts=0.01, drafter=0.0, lm_head=0.0),
        arm(0.012, experts=0.008, drafter=0.004, lm_head=0.0),
    )
    row = {"vary": {"a": 1}, "speedup": speedup(1.0), "probability_faster": 0.5, "baseline": base, "speculative": spec}
    chart = named(whatif.charts({"inputs": {}, "rows": [row]}, {}), "step-parts-1")
    assert drawn(chart, "label", "arm", "value") == [
        ("routed experts", "baseline", 10.0),
        ("routed experts", "with drafts", 8.0),
        ("drafter", "baseline", 0.0),
        ("drafter", "with drafts", 4.0),
    ]
    assert chart.table.rows[-1] == ("whole step", 10.0, 12.0)


def simulated(**changes: Any) -> Json:
    """An arm of `simulate`."""
    times = {name: {"p50": 0.1, "p95": 0.2, "p99": 0.3} for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s")}
    series = {name: [1.0, 2.0] for name in ("time_s", "running", "waiting", "kv_usage", "tokens_per_s")}
    return {**times, "series": series, **changes}


def test_a_simulation_draws_percentiles_and_series_of_both_arms() -> None:
    charts = simulate.charts({"baseline": simulated(), "speculative": simulated()}, {})
    assert ("p95", "with drafts", 200.0) in drawn(named(charts, "waiting-ttft"), "label", "arm", "value")
    assert drawn(named(charts, "series-running"), "arm", "time", "value")[:2] == [
        ("baseline", 1.0, 1.0),
        ("baseline", 2.0, 2.0),
    ]


def fills(svg: str, color: str) -> set[str]:
    """How much of it shines through where a mark has this colour: of all bars and of the legend's."""
    return set(re.findall(rf'fill="{color}" fill-opacity="([0-9.]+)"|fill="{color}"', svg))


def test_the_legend_of_bars_has_the_shades_of_the_bars() -> None:
    charts = simulate.charts({"baseline": simulated(), "speculative": simulated()}, {})
    svg = inline_svg(named(charts, "waiting-ttft").wide, "a", "bars")
    assert fills(svg, BASELINE) == {"0.55"}
    assert fills(svg, SPECULATIVE) == {""}


def test_a_series_too_short_for_a_line_has_marks_as_large_as_a_curve() -> None:
    def mark_sizes(values: int) -> set[float | None]:
        arm = simulated(series={name: [float(i) for i in range(values)] for name in ("time_s", "running")})
        spec = named(simulate.charts({"baseline": arm, "speculative": arm}, {}), "series-running").wide
        return {each["mark"].get("size") for each in spec["layer"] if each["mark"]["type"] == "point"}

    assert mark_sizes(1) == {None}
    assert mark_sizes(50) == {8}


def test_a_simulation_that_was_interrupted_draws_the_arm_that_ran() -> None:
    nothing = {"p50": None, "p95": None, "p99": None}
    charts = simulate.charts({"baseline": simulated(ttft_s=nothing), "speculative": None}, {})
    assert "waiting-ttft" not in [chart.name for chart in charts]
    assert {arm for chart in charts for (arm,) in drawn(chart, "arm")} == {"baseline"}


def residual(**changes: Any) -> Json:
    """A residual of `calibrate`."""
    row = {
        "label": "TPOT at C=1",
        "quantity": "tpot",
        "concurrency": 1.0,
        "num_speculative_tokens": 0,
        "measured": 0.010,
        "predicted": 0.011,
        "error": 0.1,
        "noise": 0.02,
        "left_out_error": None,
    }
    return {**row, **changes}


def calibrated(residuals: list[Json], parameters: Json | None = None) -> Json:
    """A result of `calibrate`."""
    return {"residuals": residuals, "parameters": parameters or {}, "measurements": []}


def test_residuals_are_drawn_with_what_leaving_them_out_gives() -> None:
    rows = [residual(), residual(concurrency=8.0, left_out_error=-0.2)]
    chart = named(calibrate.charts(calibrated(rows), {}), "residuals")
    assert set(drawn(chart, "load", "error")) == {(1.0, 0.1), (8.0, 0.1), (8.0, -0.2)}


def test_a_fit_is_drawn_over_its_measurements_in_their_unit() -> None:
    rows = [residual(measured=0.01 * i, predicted=0.011 * i) for i in (1, 2, 3)]
    chart = named(calibrate.charts(calibrated(rows), {}), "fit-tpot")
    assert drawn(chart, "measured", "predicted")[-3:] == [
        pytest.approx((10.0, 11.0)),
        pytest.approx((20.0, 22.0)),
        pytest.approx((30.0, 33.0)),
    ]


def test_parameters_that_no_measurement_tells_about_are_not_drawn() -> None:
    told = {"value": 1.0, "p05": 0.5, "p95": 2.0, "moved": 1.0, "spread_left": 0.5, "at_bound": False}
    parameters = {"told": told, "untold": {**told, "moved": 0.0, "spread_left": 1.0}}
    chart = named(calibrate.charts(calibrated([], parameters), {}), "parameters")
    assert drawn(chart, "label", "low", "mid", "high") == [("told", 1.0 - 1.645 / 2, 1.0, 1.0 + 1.645 / 2)]


def scored(**changes: Any) -> Json:
    """A row of `backtest --rows`."""
    row = {"set_id": "S", "method": "MTP", "num_speculative_tokens": 1, "concurrency": 1.0, "speedup_observed": 1.2}
    return {**row, "speedup": speedup(1.3), **changes}


def scores(name: str, median: float | None) -> Json:
    """A set of `backtest`."""
    figures = {"p90_abs_error": 0.4, "sign_accuracy": None, "coverage_90": 0.9}
    return {"set_id": name, "rows": 3, "median_abs_error": median, **figures}


def test_a_backtest_draws_its_rows_and_its_sets_worst_first() -> None:
    result = {"sets": [scores("good", 0.1), scores("bad", 0.3)]}
    charts = backtest.charts(result, {"rows": [scored(), scored(speedup_observed=2.0)]})
    assert {(1.2, 1.3), (2.0, 1.3)} <= set(drawn(charts[0], "measured", "predicted"))
    assert drawn(charts[1], "label", "mid") == [("bad (3)", 30.0), ("good (3)", 10.0)]


def test_sets_whose_names_are_cut_to_the_same_have_lines_of_their_own() -> None:
    sets = [scores("https://example.org/a/long/name/of/a/published/set/" + end, 0.1) for end in "ab"]
    assert len(drawn(backtest.charts({"sets": sets}, {"rows": []})[0], "label")) == 2


def test_a_backtest_that_scored_nothing_draws_nothing() -> None:
    assert backtest.charts({"sets": []}, {"rows": []}) == []


def test_a_cloud_of_many_rows_is_thinned_and_says_so() -> None:
    chart = backtest.charts({"sets": []}, {"rows": [scored() for _ in range(3000)]})[0]
    assert "Every 3th" not in chart.finding
    assert "One in 3 is drawn" in chart.finding
    assert len(chart.table.rows) == 3000


def test_a_validation_draws_every_figure_with_what_was_measured() -> None:
    band = {"p05": 1.0, "p50": 1.1, "p95": 1.2}
    figure = {"predicted": band, "measured": 1.3, "inside_interval": False}
    cells = [{"concurrency": 4, "num_speculative_tokens": 2, "quantities": {"speedup": figure, "tpot_s": figure}}]
    charts = validate.charts({"cells": cells}, {})
    assert [chart.label for chart in charts] == ["speedup", "time per token"]
    assert drawn(charts[0], "label", "mid", "measured")[0] == ("k = 2, concurrency 4 (outside)", 1.1, 1.3)
    assert "0 of 1 lie inside" in charts[0].finding


def test_a_validation_with_the_figures_of_the_contract_alone_is_drawn_too() -> None:
    band = {"p05": 1.0, "p50": 1.1, "p95": 1.2}
    one = {"concurrency": 4, "num_speculative_tokens": 2, "predicted": band, "measured": 1.1, "inside_interval": True}
    assert drawn(validate.charts({"cells": [one]}, {})[0], "mid", "measured") == [(1.1, 1.1)]


def test_allreduce_texts_do_not_touch_each_other() -> None:
    points = [
        {
            "arm": arm,
            "concurrency": load,
            "bytes": 1e4 * load * (4 if arm == "speculative" else 1),
            "time_s": 1e-5 * load,
        }
        for load in (*range(1, 20), 256)
        for arm in ("baseline", "speculative")
    ]
    curve = [{"bytes": 1e3 * 4**i, "time_s": 1e-5} for i in range(8)]
    found = {"points": points, "curve": curve, "allreduces_per_step": 10, "skew_s": 0.0, "source": "by hand"}
    (chart,) = curves.allreduce_charts({"allreduce": found})
    assert len(chart.table.rows) == 48
    for layer in [each for each in chart.wide["layer"] if each["mark"]["type"] == "text"]:
        sizes = [row["size"] for row in layer["data"]["values"]]
        low, high = layer["encoding"]["x"]["scale"]["domain"]
        assert len(sizes) > 4
        assert all(math.log(b / a) >= 0.04 * math.log(high / low) for a, b in itertools.pairwise(sizes))


def test_a_validation_shows_the_speedup_first_and_loads_far_apart_on_a_logarithmic_axis() -> None:
    cells = [
        {
            "concurrency": load,
            "num_speculative_tokens": k,
            "quantities": {
                "throughput_tokens_per_s": {
                    "predicted": {"p05": 40.0 * load, "p50": 50.0 * load, "p95": 60.0 * load},
                    "measured": 200.0 * load,
                    "inside_interval": False,
                },
                **({"speedup": {"predicted": speedup(1.2), "measured": 1.3, "inside_interval": True}} if k else {}),
            },
        }
        for load in (1, 64)
        for k in (0, 2)
    ]
    first, second = validate.charts({"cells": cells}, {})
    assert (first.label, first.selected, second.label, second.selected) == ("speedup", True, "throughput", False)
    scales = [chart.wide["layer"][-1]["encoding"]["x"]["scale"] for chart in (first, second)]
    assert [scale.get("type") for scale in scales] == [None, "log"]
    low, high = scales[1]["domain"]
    assert low < 40
    assert high > 200 * 64


def test_options_are_drawn_with_their_gain_and_their_days() -> None:
    day_s = 86400.0
    option = {"name": "eagle3", "method": "eagle3", "speedup": speedup(1.3), "time_to_benefit_s": day_s}
    result = {"options": [{**option, "payback_s": {"p50": 3 * day_s}}, {**option, "name": "x", "speedup": None}]}
    charts = options.charts(result, {})
    assert drawn(charts[0], "label", "mid") == [("1 eagle3", 1.3)]
    assert drawn(charts[1], "low", "high") == [(1.0, 3.0)]


def test_an_option_counts_with_the_best_drafter_after_it_where_that_is_better() -> None:
    gain = {"concurrency": 4, "speedup": speedup(1.5), "probability_faster": 0.9, "num_speculative_tokens": 3}
    after = {"method": "eagle3", "drafter": "head", "speedup": speedup(1.5), "by_load": [gain]}
    own = {"by_load": [{**gain, "speedup": speedup(0.9), "probability_faster": 0.1}]}
    option = {"name": "newer engine", "speedup": speedup(0.9), "best_after": after, **own}
    for counts, expected in ((True, [("1 newer engine + head", 1.5)]), (False, [("1 newer engine", 0.9)])):
        charts = options.charts({"options": [{**option, "with_best_drafter": counts}]}, {})
        assert drawn(named(charts, "options"), "label", "mid") == expected
        assert drawn(named(charts, "options-by-load"), "sure") == [(counts,)]


def test_what_a_deployment_does_not_have_is_not_drawn() -> None:
    nothing = {"acceptance": None, "experts": None, "allreduce": None, "num_speculative_tokens": 0}
    charts = (curves.acceptance_charts, curves.experts_charts, curves.allreduce_charts)
    assert [chart for kind in charts for chart in kind(nothing)] == []


def test_names_from_outside_are_values_and_never_fields_or_expressions() -> None:
    hostile = "datum['x'] \"];alert(1)//{{}}"
    rows = [what_if_row({hostile: b, "c.d": d}, 1.0) for b in (hostile, "2") for d in (hostile, "y")]
    for chart in whatif.charts({"inputs": {}, "rows": rows}, {}):
        specs = json.loads(json.dumps(chart.wide))
        for layer in specs["layer"]:
            layer.pop("data")
        for encoding in (layer["encoding"] for layer in specs["layer"]):
            for channel in encoding.values():
                assert hostile not in str(channel.get("field")) + str(channel.get("condition"))
        assert "alert(1)" in inline_svg(chart.wide, "a", chart.alt) or chart.group == "step-parts"


@pytest.mark.parametrize("values", [(13.0, 20.0, 31.0, 61.0), (1.0, 1.5, 2.2), (72.0, 90.0, 1242.0), (5.0, 5.0, 5.0)])
def test_a_logarithmic_axis_says_so_and_has_three_ticks_where_three_values_differ(values: tuple[float, ...]) -> None:
    from validate.report.theme import log_axis, round_ticks

    axis = log_axis(values, "ms per token", 6, round_ticks(values))["axis"]
    assert axis["title"] == "ms per token, log scale"
    assert len(axis["values"]) >= min(3, len(set(values)))
