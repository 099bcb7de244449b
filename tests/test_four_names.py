import ast
import importlib
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parent.parent
ROOMS = ("hwmodel", "simulator", "calibration", "validate", "draftcast")


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_is_imported_from_this_checkout(room: str) -> None:
    module = importlib.import_module(room)
    assert module.__file__ is not None
    assert Path(module.__file__) == CHECKOUT / room / "__init__.py"


def test_validate_itself_holds_no_names() -> None:
    # Other distributions own a top-level `validate`: code must name the submodule that it means.
    module = ast.parse((CHECKOUT / "validate" / "__init__.py").read_text(encoding="utf-8"))
    assert [type(statement) for statement in module.body] == [ast.Expr]
