"""The fitted constants, and the shift that leads back to what their sources said."""

import math

import pytest

from calibration.published.population import CONSTANTS, Constant
from hwmodel.parameters import prior_table


@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda constant: constant.name)
def test_a_constant_belongs_to_a_parameter_and_knows_its_source(constant: Constant) -> None:
    assert constant.parameter in prior_table()
    assert constant.shipped_value * math.exp(constant.source_shift) == pytest.approx(constant.source_value)
    assert constant.log_sd > 0.0


def test_constants_have_distinct_names() -> None:
    assert len({constant.name for constant in CONSTANTS}) == len(CONSTANTS)
