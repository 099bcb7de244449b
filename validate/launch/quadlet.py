"""Launches of a Podman Quadlet unit (`.container`): image, entrypoint and Exec= under systemd's quoting rules.

Source: podman-systemd.unit(5).
"""

from pathlib import Path

from validate.launch.containers import container_launches
from validate.launch.findings import Finding, Launch
from validate.launch.systemd import unit_pieces, unit_settings
from validate.launch.systemd_words import split_words


def read_quadlet(text: str, path: Path | None = None) -> list[Launch]:
    """The engine launches of the unit, drop-ins beside it included."""
    findings: list[Finding] = []
    values: dict[str, str] = {}
    environment: dict[str, str] = {}
    for piece in unit_pieces(text, path):
        for section, key, value in unit_settings(piece, findings):
            if section != "Container":
                continue
            values[key] = value
            if key == "Environment":
                pairs = (item.partition("=") for item in split_words(value).words)
                environment |= {name: content for name, equals, content in pairs if equals}
    launch = Launch(
        values.get("ContainerName") or (path.name if path else "container"),
        "systemd",
        (),
        environment,
        image=values.get("Image"),
        folder=path.parent if path else None,
        findings=tuple(findings),
    )
    entrypoint = split_words(values["Entrypoint"]).words if values.get("Entrypoint") else None
    command = tuple(word.replace("%%", "%").replace("$$", "$") for word in split_words(values.get("Exec", "")).words)
    return container_launches(launch, entrypoint, command)
