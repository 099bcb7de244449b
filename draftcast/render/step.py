"""`draftcast step` for a human reader."""

from collections.abc import Mapping, Sequence
from typing import Any

from draftcast.render.numbers import UNDEFINED, counted, microseconds, milliseconds, share, significant
from draftcast.render.page import Page
from draftcast.render.phrases import sentences
from hwmodel.units import KIB

_LINKS_SHOWN = 8  # the busiest; JSON has them all


def render(result: Mapping[str, Any], page: Page) -> None:
    """The step in a sentence, then its parts, the AllReduce, ranks, links, experts, growth, and why."""
    inputs, allreduce = result["inputs"], result["allreduce"]
    drafts = f"{counted(inputs['num_speculative_tokens'], 'draft token')} ({inputs['method']})"
    what = drafts if inputs["num_speculative_tokens"] else "no drafts"
    page.headline(
        f"A step takes {milliseconds(result['step_s'])} ms at concurrency {inputs['concurrency']} with {what}; "
        f"{share(allreduce['share'])} of it AllReduce."
    )
    _parts(result, page)
    _allreduce(allreduce, page)
    _ranks(result["ranks"], result["step_s"], page)
    _links(result["links"], page)
    _experts(result["distinct_experts_per_layer"], page)
    _growth(result["growth"], page)
    page.section("Why", sentences(result["why"]))


def _parts(result: Mapping[str, Any], page: Page) -> None:
    parts, expected = result["parts_s"], result["closed_form"]["parts_s"]
    rows = [
        (
            name.replace("_", " "),
            milliseconds(parts[name]),
            share(parts[name] / result["step_s"]),
            milliseconds(expected[name]),
        )
        for name in sorted(parts, key=lambda name: -parts[name])
        if parts[name] or expected[name]
    ]
    rows.append(("step", milliseconds(result["step_s"]), "", milliseconds(result["closed_form"]["step_s"])))
    page.table(("part of a step", "simulated ms", "", "formula ms"), rows)


def _allreduce(allreduce: Mapping[str, Any], page: Page) -> None:
    if not allreduce["count"]:
        return
    size = f"{significant(allreduce['bytes'] / KIB)} KiB"
    page.heading(f"AllReduce: {allreduce['count']} of {size}, {allreduce['algorithm']}")
    rows = [
        ("in the profiler", microseconds(allreduce["mean_s"])),
        ("of it after the last rank has come", microseconds(allreduce["network_s"])),
        ("of it waiting for the last rank", microseconds(allreduce["skew_s"])),
        ("alone, as nccl-tests has it", microseconds(allreduce["nccl_tests_s"])),
    ]
    rows += [(f"alone, by {row['algorithm']}", microseconds(row["network_s"])) for row in allreduce["alternatives"]]
    page.table(("each", "us"), rows)


def _ranks(ranks: Sequence[Mapping[str, Any]], step_s: float, page: Page) -> None:
    rows = [
        (
            str(rank["rank"]),
            milliseconds(rank["compute_s"]),
            milliseconds(rank["network_s"]),
            milliseconds(rank["wait_s"]),
            share(rank["allreduce_s"] / step_s),
            significant(rank["times_last"]),
            UNDEFINED
            if rank["distinct_experts_per_layer"] is None
            else significant(rank["distinct_experts_per_layer"]),
        )
        for rank in ranks
    ]
    head = ("rank", "compute ms", "network ms", "waiting ms", "AllReduce", "times last", "experts a layer")
    page.table(head, rows)


def _links(links: Sequence[Mapping[str, Any]], page: Page) -> None:
    busiest = sorted(links, key=lambda link: (-link["busy_share"], link["name"]))[:_LINKS_SHOWN]
    rows = [
        (link["name"], significant(link["num_messages"]), share(link["busy_share"]), milliseconds(link["queued_s"]))
        for link in busiest
    ]
    if rows:
        page.table(("busiest links", "messages", "busy", "queued ms"), rows)


def _experts(experts: Mapping[str, Any] | None, page: Page) -> None:
    if experts is None:
        return
    page.text(
        f"Experts a layer for {experts['tokens']} token rows: {significant(experts['sampled'])} of"
        f" {experts['num_experts']} ({experts['sampled_min']} to {experts['sampled_max']} as drawn; the formula says"
        f" {significant(experts['expected'])})"
        + (
            f", the busiest rank {significant(experts['busiest_rank_over_mean'])} times the mean."
            if experts["busiest_rank_over_mean"]
            else "."
        )
    )


def _growth(growth: Sequence[Mapping[str, Any]], page: Page) -> None:
    rows = [
        (
            str(row["concurrency"]),
            str(row["num_speculative_tokens"]),
            significant(row["rows"]),
            microseconds(row["allreduce_s"]),
            milliseconds(row["step_s"]),
            share(row["allreduce_share"]),
        )
        for row in growth
    ]
    if rows:
        page.table(("concurrency", "draft tokens", "rows", "AllReduce us", "step ms", "AllReduce share"), rows)
