"""`draftcast experts` for a human reader."""

from collections.abc import Mapping, Sequence
from typing import Any

from draftcast.render.numbers import share, significant
from draftcast.render.page import Page


def render(result: Mapping[str, Any], page: Page) -> None:
    """The curve as a table, with the share of all experts and the count if routing were uniform."""
    inputs = result["inputs"]
    num_experts = inputs["num_experts"]
    page.headline(
        f"{inputs['model']}: each token picks {inputs['num_experts_per_tok']} of {num_experts} experts in every "
        "mixture-of-experts layer."
    )
    rows = [
        (
            str(point["tokens"]),
            significant(point["distinct_experts"]),
            share(point["distinct_experts"] / num_experts),
            significant(point["distinct_experts_uniform"]),
        )
        for point in result["curve"]
    ]
    page.table(("tokens in the step", "experts read", "of all", "if uniform"), rows)
    if "fitted" in result:
        _fitted(result["fitted"], page)
    if result.get("budgets"):
        _budgets(result["budgets"], num_experts, page)
    if inputs["priors"]:
        values = ", ".join(f"{name.replace('_', ' ')} {inputs[name]:g}" for name in inputs["priors"])
        page.text(f"Priors, not measured for this model: {values}. Options of the same names replace them.")


def _fitted(fitted: Mapping[str, Any], page: Page) -> None:
    """The fit to counted experts, and what of it goes into the deployment file."""
    page.heading("Fitted to the counts")
    rows = [
        (str(row["tokens"]), str(row["requests"]), *(significant(row[name]) for name in ("counted", "fitted")))
        for row in fitted["rows"]
    ]
    page.table(("tokens in the step", "requests", "counted", "fitted"), rows)
    parameters = [
        (name, "the counts" if found["determined"] else "its prior", significant(found["value"]))
        for name, found in fitted["parameters"].items()
    ]
    page.table(("parameter", "from", "value"), parameters, num_texts=2)
    unknown = [name for name, found in fitted["parameters"].items() if not found["determined"]]
    if unknown:
        held = "" if len(unknown) == len(parameters) else ", and the rest is fitted with that"
        page.text(f"The counts fit as well with {', '.join(unknown)} at the prior: they do not tell it{held}.")
    if fitted["deployment_toml"] is not None:
        page.text("For the deployment file:")
        for line in fitted["deployment_toml"].splitlines():
            page.verbatim(line)


def _budgets(budgets: Sequence[Mapping[str, Any]], num_experts: int, page: Page) -> None:
    """What budgets keep: experts read, gate mass with dropped ones skipped or replaced, tokens without their best."""
    page.heading("With a budget of experts (MoE-Spec): gate mass kept, tokens that lose their best")
    rows = [
        (
            str(row["tokens"]),
            str(row["budget"]),
            f"{significant(row['experts_read'])} of {significant(row['distinct_experts'])}",
            share(row["gate_mass_truncated"]),
            share(row["gate_mass_substituted"]),
            share(row["top_expert_dropped"]),
        )
        for row in budgets
        if row["budget"] <= num_experts
    ]
    page.table(("tokens in the step", "budget", "experts read", "skipped", "replaced", "lose best"), rows)
    page.text("Sampled; skipped: a dropped expert adds nothing, replaced: the next best kept one stands in.")
