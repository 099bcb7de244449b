"""What a group may have run on: the readings of what a source leaves open."""

import math

import pytest
from published_rows import row

from calibration.published.layouts import choices, parallel_sizes, spreads_experts


@pytest.mark.parametrize(
    ("tp", "gpu_count", "dp", "expected"),
    [
        ("8", "8", "", ((8,), 1)),
        ("4", "8", "", ((4,), 1)),
        ("4", "8", "2", ((4,), 2)),
        ("4", "", "2", ((4,), 2)),
        ("8", "8", "8", ((1,), 8)),  # attention data-parallel inside one group
        ("8", "8", "2", ((4,), 2)),
        ("", "8", "", ((8,), 1)),
        ("", "8", "8", ((1,), 8)),
        ("", "8", "4", ((2,), 4)),
        ("", "", "", ((1, 2, 4, 8), 1)),
        ("", "", "2", ((1, 2, 4, 8), 2)),
        ("16", "16", "", ((16,), 1)),
        ("", "128", "", ((8,), 1)),
        ("", "3", "1", ((3,), 1)),
        ("2 (TP)", "2", "1", ((2,), 1)),
    ],
)
def test_tensor_and_data_parallel_sizes(
    tp: str, gpu_count: str, dp: str, expected: tuple[tuple[int, ...], int]
) -> None:
    text = row(tp=tp, gpu_count=gpu_count, dp=dp).text
    groups, data = parallel_sizes(text)
    assert (tuple(groups), data) == expected


@pytest.mark.parametrize(
    ("cell", "spread"),
    [
        *((cell, True) for cell in ("on", "EP8", "8", "4 (MoE TP2)", "12 decode nodes", "yes")),
        *((cell, False) for cell in ("", "1", "off", "no", "0")),
    ],
)
def test_expert_parallelism_is_on_where_the_cell_says_so(cell: str, spread: bool) -> None:
    assert spreads_experts(row(ep=cell).text) == spread


def test_a_source_that_says_everything_has_one_reading() -> None:
    only = choices(row(gpu="H100", tp="4", gpu_count="4", interconnect="NVLink").text)
    assert [(each.gpu, each.tensor, each.data, each.guess) for each in only] == [("h100-sxm", 4, 1, False)]
    assert only[0].log_prior == 0.0


def test_a_source_without_a_gpu_is_read_as_each_usual_one_at_each_usual_size() -> None:
    found = choices(row(gpu="not stated", tp="", gpu_count="").text)
    assert {each.tensor for each in found} == {1, 2, 4, 8}
    assert len({each.gpu for each in found}) > 2
    assert all(each.guess for each in found)
    of_one_size = [math.exp(each.log_prior) for each in found if each.tensor == 1]
    assert sum(of_one_size) == pytest.approx(1.0)


def test_a_gpu_without_a_card_is_one_reading_with_a_stand_in() -> None:
    assert [each.gpu for each in choices(row(gpu="V100").text)] == [None]


def test_pcie_alone_leaves_the_class_and_the_one_shot_limit_open() -> None:
    found = choices(row(gpu="RTX PRO 6000", tp="8", gpu_count="8", interconnect="PCIe 5 (no NVLink)").text)
    assert {each.interconnect for each in found} >= {"pcie-switch", "pcie-root", "pcie-dual-socket"}
    assert any(each.one_shot_max_kib for each in found)
    assert len({each.label for each in found}) == len(found)


def test_one_gpu_has_no_links() -> None:
    assert len(choices(row(gpu="RTX PRO 6000", tp="1", gpu_count="1", interconnect="PCIe").text)) == 1
