"""`draftcast calibrate` for a human reader: parameters, what is open and why, residuals, what to measure next."""

from collections.abc import Mapping, Sequence
from typing import Any

from draftcast.render.numbers import UNDEFINED, counted, milliseconds, share, significant
from draftcast.render.page import Page
from hwmodel.percent import load_text, percent

_TOLD = 0.9  # spread left of the prior's below which a parameter is worth a row
_MOVED = 0.5  # prior standard deviations
_MATTERS = 0.003  # of ln(speedup): less does not show in a rounded answer
_ROWS = 12
_MOST_RESIDUALS, _WORST_RESIDUALS = 24, 12  # more than a screen: only the worst
_MOST_OPEN = 6
_WORDS = {"parameters": "parameters", "acceptance": "acceptance", "model_error": "what no measurement tells"}


def render(result: Mapping[str, Any], page: Page) -> None:
    """The fit in a sentence, its tables, warnings, and the measurements that would narrow the answer."""
    _headline(result, page)
    _parameters(result["parameters"], page)
    _correlations(result["correlations"], page)
    _residuals(result["residuals"], page)
    _model_error(result, page)
    page.section("Warnings", result["warnings"])
    page.section("Not used", [f"{item['source']}: {item['reason']}" for item in result["refused"]])
    _undetermined(result["undetermined"], page)
    _measurements(result, page)
    if result.get("profile"):
        page.heading("Use it")
        page.verbatim(f"draftcast predict DEPLOYMENT --profile {result['profile']}")


def _headline(result: Mapping[str, Any], page: Page) -> None:
    fit, files = result["fit"], result["files"]
    if files["given"] and not files["used"]:
        page.headline(f"0 of {counted(files['given'], 'file')} used: nothing below comes from the data that was given.")
    told = [name for name, p in result["parameters"].items() if _left(p) < _TOLD]
    page.headline(
        f"{counted(fit['num_measurements'], 'measurement')} at {counted(fit['num_concurrencies'], 'load')} tell"
        f" {len(told)} of {len(result['parameters'])} parameters;"
        f" the model error is {share(result['model_error']['value'])}."
    )
    if 0 < len(files["used"]) < files["given"]:
        page.text(f"{len(files['used'])} of {files['given']} files used; the others: Not used, and the notes.")
    extras = [f"acceptance of {a['method']} k={a['num_speculative_tokens']}: {significant(a['drafts'])} drafts"
              for a in result["acceptance"]]  # fmt: skip
    if result["kv_cache_tokens"]:
        extras.append(f"KV cache of {counted(result['kv_cache_tokens'], 'token')}")
    if result["allreduce_curve"]:
        curve = result["allreduce_curve"]
        extras.append(f"AllReduce times of {counted(curve['num_sizes'], 'size')} over {curve['num_gpus']} GPUs")
    if result["settings"]:
        extras.append(
            "fitted with " + ", ".join(f"{key} = {_setting(value)}" for key, value in result["settings"].items())
        )
    if extras:
        page.text(f"Also kept in the profile: {'; '.join(extras)}.")


def _left(parameter: Mapping[str, Any]) -> float:
    left = parameter["spread_left"]
    return 1.0 if left is None else float(left)


def _parameters(parameters: Mapping[str, Mapping[str, Any]], page: Page) -> None:
    shown = {
        name: p
        for name, p in parameters.items()
        if name != "model_error" and (_left(p) < _TOLD or abs(p["moved"]) > _MOVED or p["at_bound"])
    }
    rows = [
        (
            name,
            significant(p["value"]),
            significant(p["stderr"], 2),
            _prior_text(p["prior"]),
            share(p["spread_left"]),
            f"{p['moved']:+.1f}",
            "at bound" if p["at_bound"] else "",
        )
        for name, p in sorted(shown.items(), key=lambda item: _left(item[1]))
    ]
    if rows:
        page.table(("parameter", "value", "stderr", "prior", "left", "moved", ""), rows)
        page.text("left: the spread in percent of the prior's. moved: from the prior, in its standard deviations.")
    rest = [name for name in parameters if name not in shown and name != "model_error"]
    if rest:
        page.text(f"At their priors: {', '.join(rest)}.")


def _prior_text(prior: Mapping[str, Any]) -> str:
    """The prior in one cell: "0.8 x/ 1.11" (a factor), "0.9 +- 0.35", or a probability."""
    if "median" in prior:
        return f"{significant(prior['median'], 2)} ({significant(prior['log_sd'], 2)} log)"
    if "mean" in prior:
        return f"{significant(prior['mean'], 2)} ({significant(prior['sd'], 2)})"
    return f"P {significant(prior['probability'], 2)}"


def _correlations(correlations: Sequence[Mapping[str, Any]], page: Page) -> None:
    rows = [(" and ".join(item["parameters"]), f"{item['correlation']:+.2f}") for item in correlations[:_ROWS]]
    if rows:
        page.table(("together", "correlation"), rows)


def _residuals(residuals: Sequence[Mapping[str, Any]], page: Page) -> None:
    shown = residuals
    if len(residuals) > _MOST_RESIDUALS:
        shown = sorted(residuals, key=lambda row: -abs(row["standardised"]))[:_WORST_RESIDUALS]
    rows = [
        (
            _of_what(row),
            _amount(row["quantity"], row["measured"]),
            _amount(row["quantity"], row["predicted"]),
            percent(row["error"], 1, signed=True),
            f"{row['standardised']:+.1f}",
            UNDEFINED if row["left_out_error"] is None else percent(row["left_out_error"], 1, signed=True),
            "" if row["weight"] >= 1 else share(row["weight"]),
        )
        for row in shown
    ]
    if rows:
        page.table(("measured", "value", "fit", "error", "noises", "left out", "weight"), rows)
        page.text("left out: error of the prediction from all other concurrencies.")
    if len(shown) < len(residuals):
        page.text(f"The {len(shown)} farthest off of {len(residuals)}; --json has them all.")


def _of_what(row: Mapping[str, Any]) -> str:
    names = {"tpot": "TPOT ms", "step": "step ms", "throughput_tokens_per_s": "tok/s", "allreduce_share": "AR share"}
    drafts = f", k={row['num_speculative_tokens']}" if row["num_speculative_tokens"] else ""
    return (
        f"{names[row['quantity']]} C={load_text(row['concurrency'])}{drafts} ctx {significant(row['context_tokens'])}"
    )


def _amount(quantity: str, value: float) -> str:
    if quantity in ("tpot", "step"):
        return milliseconds(value)
    return share(value) if quantity == "allreduce_share" else significant(value)


def _model_error(result: Mapping[str, Any], page: Page) -> None:
    crossed, tau = result["cross_validation"], result["model_error"]
    if crossed["inside_90"] is None:
        page.text(
            f"Model error {share(tau['value'])}, {_of_priors(tau)}; nothing can be left out: {crossed['reason']}."
        )
        return
    page.text(
        f"Leaving out one concurrency at a time: {share(crossed['inside_90'])} of {crossed['num_measurements']}"
        f" lie in their 90 % interval, error {share(crossed['rms_error'])}; model error {share(tau['value'])}"
        + f", {_of_priors(tau)}."
    )


def _of_priors(tau: Mapping[str, Any]) -> str:
    return (
        f"{share(tau['before'])} before the measurements" if tau["num_concurrencies"] else "nothing was measured of it"
    )


def _undetermined(undetermined: Sequence[Mapping[str, Any]], page: Page) -> None:
    matter = [item for item in undetermined if item["influence"] >= _MATTERS]
    page.section(
        "Not determined, and the answer depends on it",
        [
            f"{item['name']} ({share(item['spread_left'])} of its prior spread left, worth"
            f" +- {_percent(item['influence'])} of the speedup): {item['why']}"
            for item in matter[:_MOST_OPEN]
        ],
    )
    if len(matter) > _MOST_OPEN:
        page.text(f"And {len(matter) - _MOST_OPEN} more that matter less; --json has them all.")


def _measurements(result: Mapping[str, Any], page: Page) -> None:
    if not result["measurements"]:
        return
    page.heading("What would narrow the answer most")
    parts = ", ".join(f"{_WORDS[name]} {_percent(value)}" for name, value in result["log_speedup_sd"].items())
    before = result["measurements"][0]["log_speedup_sd_before"]
    page.text(f"The speedup is known to +- {_percent(before)} (one standard deviation, mean over the loads): {parts}.")
    if result["wider_reason"]:
        page.text(f"Wider than before: {result['wider_reason']}.")
    rows = [
        (
            f"+- {_percent(item['log_speedup_sd_after'])}",
            f"{item['restarts']}" if item["restarts"] else "no",
            f"{item['name']}: {item['what']}",
        )
        for item in result["measurements"]
    ]
    page.words(("leaves", "restart", "measurement"), rows)


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _percent(value: float) -> str:
    """A spread with one decimal: 9.8 %."""
    return percent(value, 1)
