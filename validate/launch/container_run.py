"""Read commands that start a container other than docker's: `apptainer run` of an image, `kubectl run`.

Sources: apptainer-run(1), "run a docker image": the image's ENTRYPOINT takes the words after it; kubectl run --help.
"""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from validate.launch.docker_run import Container, env_file, is_docker_run, read_docker_run
from validate.launch.files import read_beside
from validate.launch.program import image_entrypoint

_APPTAINER = frozenset(("apptainer", "singularity"))
_IMAGE_FILE = re.compile(r"(?:.*/)?([\w\-.]*?)[_\-+]v?(\d+\.\d+\.\d+[\w.\-]*?)?\.(?:sif|sqsh|img)")
_KUBECTL_VALUES = frozenset(("-n", "--namespace", "--context", "--kubeconfig", "--image", "--env", "-l", "--labels"))


def starts_container(argv: Sequence[str]) -> bool:
    """Whether the words start a container whose entrypoint is the image's or is given."""
    return is_docker_run(argv) or _is_apptainer_run(argv) or _is_kubectl_run(argv)


def read_container(argv: Sequence[str], environment: dict[str, str], folder: Path | None) -> Container:
    """The container that the words start; its `argv` is () where the image's entrypoint cannot be known."""
    if _is_apptainer_run(argv):
        return _read_apptainer(argv, environment, folder)
    return _read_kubectl(argv) if _is_kubectl_run(argv) else read_docker_run(argv, environment, folder)


def _program(argv: Sequence[str]) -> str:
    return argv[0].rsplit("/", 1)[-1] if argv else ""


def _is_apptainer_run(argv: Sequence[str]) -> bool:
    actions = [word for word in argv[1:] if not word.startswith("-")]
    return _program(argv) in _APPTAINER and actions[:1] == ["run"] and _image_position(argv) is not None


def _image_position(argv: Sequence[str]) -> int | None:
    """Where the image stands: the options in front of it take values, which never look like one."""
    return next((at for at, word in enumerate(argv) if "://" in word or _IMAGE_FILE.fullmatch(word)), None)


def image_reference(word: str) -> str:
    """The image that a word names, as `name:tag`: `docker://org/name:tag`, or a file built from one.

    >>> image_reference("docker://vllm/vllm-openai:v0.17.0"), image_reference("/img/vllm-openai_v0.17.0.sif")
    ('vllm/vllm-openai:v0.17.0', 'vllm-openai:v0.17.0')
    """
    file = _IMAGE_FILE.fullmatch(word)
    if file:
        return f"{file[1]}:v{file[2]}" if file[2] else file[1]
    return word.split("://", 1)[-1]


def _read_apptainer(argv: Sequence[str], environment: dict[str, str], folder: Path | None) -> Container:
    position = _image_position(argv) or 0
    container = Container(image=image_reference(argv[position]), environment=dict(environment))
    for word, following in itertools.pairwise(argv[: position + 1]):
        option, equals, attached = word.partition("=")
        value = attached if equals else following
        if option == "--env":
            pairs = (item.partition("=") for item in value.split(","))
            container.environment |= {name: text for name, _, text in pairs}
        elif option == "--env-file":
            container.environment |= env_file(read_beside(value, folder) or "")
    container.argv = (*image_entrypoint(container.image), *argv[position + 1 :])
    return container


def _is_kubectl_run(argv: Sequence[str]) -> bool:
    actions = [word for word in argv[1:] if not word.startswith("-")]
    return _program(argv) in ("kubectl", "oc") and "run" in actions[:3] and "--" in argv


def _read_kubectl(argv: Sequence[str]) -> Container:
    end = list(argv).index("--")
    container = Container(argv=tuple(argv[end + 1 :]))
    position, names = 1, []
    while position < end:
        option, equals, value = argv[position].partition("=")
        if not equals and option in _KUBECTL_VALUES:
            value, position = argv[position + 1], position + 1
        position += 1
        names += [] if option.startswith("-") else [option]
        if option == "--image":
            container.image = value
        elif option == "--env":
            name, _, text = value.partition("=")
            container.environment[name] = text
    container.name = names[1] if names[:1] == ["run"] and len(names) > 1 else ""
    if "--command" not in argv[:end] and "--command=true" not in argv[:end]:
        container.argv = (*image_entrypoint(container.image), *container.argv)
    return container
