from pathlib import Path

from validate.launch.findings import Launch
from validate.launch.sources import find_launches

IMAGE = "image: vllm/vllm-openai:v0.16.0"


def launches(path: Path) -> list[Launch]:
    return find_launches(path).launches


def codes(launch: Launch) -> list[str]:
    return [finding.code for finding in launch.findings]


def test_a_service_takes_from_the_service_of_another_file_what_it_does_not_say_itself(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "gpu.env").write_text("VLLM_A=file\nVLLM_B=file\n")
    (tmp_path / "base" / "common.yml").write_text(
        f"services:\n  base:\n    {IMAGE}\n    env_file: gpu.env\n    environment: [VLLM_B=base, VLLM_C=base]\n"
        "    command: [old/model]\n"
    )
    path = tmp_path / "docker-compose.yml"
    path.write_text(
        "services:\n  llm:\n    extends: {file: base/common.yml, service: base}\n"
        "    environment: {VLLM_C: own}\n    command: [--model, org/m]\n"
    )
    (launch,) = launches(path)
    assert launch.argv == ("vllm", "serve", "--model", "org/m")
    assert launch.image == "vllm/vllm-openai:v0.16.0"
    assert dict(launch.environment) == {"VLLM_A": "file", "VLLM_B": "base", "VLLM_C": "own"}


def test_a_service_may_extend_one_of_its_own_file() -> None:
    text = f"services:\n  a:\n    {IMAGE}\n    command: [m1]\n  b:\n    extends: a\n    command: [m2]\n"
    assert [launch.argv[-1] for launch in find_launches(text).launches] == ["m1", "m2"]


def test_services_that_extend_each_other_are_refused_in_one_line() -> None:
    found = find_launches("services:\n  a:\n    extends: b\n  b:\n    extends: {service: a}\n")
    assert [finding.code for finding in found.findings] == ["nested-too-deep"]


def test_a_base_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(f"services:\n  a:\n    extends: {{file: gone.yml, service: x}}\n    {IMAGE}\n    command: [m]\n")
    (launch,) = launches(path)
    assert codes(launch) == ["extends-unreadable"]


def test_the_override_file_beside_a_default_name_is_merged_and_said(tmp_path: Path) -> None:
    (tmp_path / "docker-compose.override.yml").write_text("services:\n  a:\n    command: [m, --max-num-seqs, '8']\n")
    text = f"services:\n  a:\n    {IMAGE}\n    command: [m]\n"
    for name, words in (("docker-compose.yml", ("m", "--max-num-seqs", "8")), ("other.yml", ("m",))):
        (tmp_path / name).write_text(text)
        (launch,) = launches(tmp_path / name)
        assert launch.argv[2:] == words
        assert len(launch.notes) == (1 if name == "docker-compose.yml" else 0)


def test_included_files_bring_their_services(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "llm.yml").write_text(f"services:\n  a:\n    {IMAGE}\n    command: [m]\n")
    path = tmp_path / "compose.yml"
    path.write_text("include:\n  - path: sub/llm.yml\n")
    assert [launch.argv[-1] for launch in launches(path)] == ["m"]
    path.write_text("include:\n  - compose.yml\n")
    assert launches(path) == []


def test_a_service_that_builds_its_image_starts_what_the_dockerfile_says(tmp_path: Path) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "Dockerfile").write_text(
        "FROM vllm/vllm-openai:v0.16.0\nENV VLLM_A=1 VLLM_B=1\n"
        'ENTRYPOINT ["vllm", "serve", "org/m"]\nCMD ["--port", "1"]\n'
    )
    path = tmp_path / "compose.yml"
    for own, words in (
        ("", ("org/m", "--port", "1")),
        ("    command: [--port, '2']\n", ("org/m", "--port", "2")),
        ("    entrypoint: [vllm, serve]\n    command: [org/n]\n", ("org/n",)),
    ):
        path.write_text(f"services:\n  a:\n    build: docker\n    environment: [VLLM_B=2]\n{own}")
        (launch,) = launches(path)
        assert launch.argv[2:] == words
        assert launch.image == "vllm/vllm-openai:v0.16.0"
        assert dict(launch.environment) == {"VLLM_A": "1", "VLLM_B": "2"}
