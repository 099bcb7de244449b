import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.errors import InputError
from validate.launch.deployment_keys import deployment_from_launch
from validate.launch.inspection import inspect_launch
from validate.launch.redaction import is_secret_option, redact_argv, redact_text

SECRET = "s3cr3t-value-1234"


def outcome(text: str) -> str:
    """Everything that the deployment reader says about a text, error or not."""
    try:
        return repr(deployment_from_launch(text))
    except InputError as error:
        return str(error)


@pytest.mark.parametrize(
    "text",
    [
        f"vllm serve m --api-key {SECRET}",
        f"vllm serve m --api-key={SECRET}",
        f"vllm serve m --api_key {SECRET} --port 1",
        f"vllm serve m --api-k {SECRET}",
        f"vllm serve m --api-key other-{SECRET} {SECRET} --port 1",
        f"vllm serve m --hf-token {SECRET}",
        f"export HF_TOKEN={SECRET}\nvllm serve m --served-model-name $HF_TOKEN",
        f"HF_TOKEN={SECRET} vllm serve m --unknown-header 'Authorization: Bearer {SECRET}'",
        f"docker run -e HF_TOKEN={SECRET} vllm/vllm-openai:v0.16.0 --model m --api-key {SECRET}",
        f"[Service]\nEnvironment=VLLM_API_KEY={SECRET}\nExecStart=/bin/vllm serve m --x ${{VLLM_API_KEY}}\n",
        f"services:\n  s:\n    image: vllm/vllm-openai:v0.16.0\n    environment: {{HF_TOKEN: {SECRET}}}\n"
        f"    command: [m, --api-key, {SECRET}]\n",
        f"args: [--model=m, '--api-key={SECRET}']\n",
        f"vllm serve m --speculative-config '{{method:{SECRET}}}' --api-key {SECRET}",
        f"""vllm serve m --api-key {SECRET} --x '{{"token": "{SECRET}" """,
        f"""vllm serve m --additional-config '{{"authToken": "{SECRET}", "x": {{"clientSecret":"{SECRET}"}}}}' """,
        f"""vllm serve m --model-loader-extra-config '{{"aws_secret_access_key":"{SECRET}"}}' """,
        f"""vllm serve m --x "{{\\"accountKey\\":\\"{SECRET}\\"}}" """,
        f"""vllm serve m -sc '{{"method":"ngram","num_speculative_tokens":5,"api_key":"{SECRET}"}}' """,
        f"vllm serve m --download-dir 'https://x/m?sas=1&X-Amz-Signature={SECRET}' --served-model-name {SECRET}",
        f"[Service]\nEnvironment=VLLM_API_KEY_2={SECRET}\nExecStart=/bin/vllm serve $VLLM_API_KEY_2\n",
        f"vllm serve https://user:{SECRET}@host/m",
        f"vllm serve https://user:p@{SECRET}@host/m",
        f"vllm serve https://{SECRET}@host/m --download-dir s3://x:y,{SECRET}@host/m",
        f"""vllm serve m --hf-overrides '{{"auth":"{SECRET}","db_pass":"{SECRET}","my_pat":"{SECRET}"}}' """,
        f"export MY_CREDS={SECRET}\nvllm serve m --served-model-name $MY_CREDS",
        f"python -m sglang.launch_server --model-path m --admin-api-key {SECRET}",
        f"vllm serve m --api-key {SECRET} stray-{SECRET}",
    ],
)
def test_no_credential_leaves_in_any_report(text: str) -> None:
    assert SECRET not in json.dumps(inspect_launch(text))
    assert SECRET not in outcome(text)


@pytest.mark.parametrize(
    "shape",
    [
        "hf_abcdefghijklmnop",
        "sk-abcdefghijklmnop",
        "nvapi-abcdefghijklmn",
        "ghp_abcdefghijklmnop",
        "gsk_abcdefghijklmnop",
        "ASIAABCDEFGHIJKLMNOP",
        "AIza" + "b" * 35,
    ],
)
def test_well_known_shapes_are_hidden_anywhere(shape: str) -> None:
    assert redact_text(f"x {shape} y") == "x *** y"


@pytest.mark.parametrize(
    "option",
    [
        "--spec-tokens",
        "--max-num-batched-tokens",
        "--num-speculative-tokens",
        "--tokenizer",
        "--return-tokens-as-token-ids",
        "--api-server-count",
    ],
)
def test_options_about_tokens_are_no_secrets(option: str) -> None:
    assert not is_secret_option(option)
    assert redact_argv([option, "5"]) == [option, "5"]


@pytest.mark.parametrize("name", ["routing-key: 5", "key: value", "num_speculative_tokens: 5", "max_new_tokens=5"])
def test_keys_that_are_no_credentials_stay(name: str) -> None:
    assert redact_text(name) == name


@pytest.mark.parametrize(
    "image", ["docker://busybox@sha256:0123", "vllm/vllm-openai@sha256:0123", "http://host:80/a@b"]
)
def test_an_at_sign_that_ends_no_user_stays(image: str) -> None:
    assert redact_text(image) == image


def test_positions_in_the_argument_list_are_kept() -> None:
    assert redact_argv(["vllm", "serve", "m", "--api-key", "a", "b", "--port", "1", "--hf-token=x"]) == [
        "vllm", "serve", "m", "--api-key", "***", "***", "--port", "1", "--hf-token=***",
    ]  # fmt: skip


def test_a_credential_on_the_command_line_is_a_warning() -> None:
    findings = inspect_launch("vllm serve m --api-key abc")["findings"]
    assert [(finding["severity"], finding["code"]) for finding in findings] == [("warning", "secret-in-argv")]


def test_a_one_letter_key_does_not_blank_out_the_text() -> None:
    report = inspect_launch("vllm serve m --api-key a --max-num-seqs 4")
    assert report["argv"] == ["vllm", "serve", "m", "--api-key", "***", "--max-num-seqs", "4"]


@given(st.text(max_size=100))
def test_redaction_takes_any_text_and_is_stable(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


def test_the_folder_that_every_shell_sets_is_no_credential() -> None:
    report = inspect_launch("export PWD=/opt/venv DB_PWD=hunter2xyz\n/opt/venv/bin/vllm serve m --x hunter2xyz")
    assert report["argv"] == ["/opt/venv/bin/vllm", "serve", "m", "--x", "***"]
