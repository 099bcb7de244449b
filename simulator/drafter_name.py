"""The name that goes into the launch text: where the engine loads the drafter's weights from."""

from pathlib import Path

from hwmodel.config_name import CONFIG_FILE
from hwmodel.models import repository_of_card
from simulator.deployment.speculation import Speculation
from simulator.published_drafters import repository_of


def loaded_drafter(speculation: Speculation) -> str | None:
    """The repository or folder of the drafter: as the launch has it, else as stated, else as published; None: unknown.

    `draft_model` names a shape, which an engine cannot load: a shipped card stands for the repository that it was read
    from, a config.json for its folder, and a card of the user's for nothing.
    """
    stated = speculation.drafter
    if stated is not None and stated != speculation.draft_model:
        return stated
    published = speculation.acceptance.published if speculation.acceptance else None
    return (stated and _of_shape(stated)) or (published and repository_of(published)) or None


def _of_shape(name: str) -> str | None:
    path = Path(name)
    if path.name == CONFIG_FILE:
        return str(path.parent)
    return None if path.suffix == ".toml" else repository_of_card(name) or name
