"""URLs and keys: checked before anything is sent, and never shown."""

import os

import pytest

from hwmodel.errors import InputError
from validate.client.target import Target, base_url, target_of, target_with

SECRET = "sk-verysecretkey123456"


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        (" https://h/v1 ", "https://h"),
        ("http://h:1/gate/v1/", "http://h:1/gate"),
        ("http://[::1]:8000/", "http://[::1]:8000"),
        ("http://h/v1/chat/completions", "http://h"),
        ("http://h/metrics", "http://h"),
    ],
)
def test_the_url_of_the_server_itself(url, base):
    assert base_url(url) == base


@pytest.mark.parametrize(
    "url", ["", "localhost:8000", "ftp://h", "http://", "http://h:99999", "http://[::1", "http://a\nb"]
)
def test_what_is_no_url_of_a_server_is_one_line(url):
    with pytest.raises(InputError, match="allowed: http://HOST:PORT") as error:
        base_url(url)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("url", [f"http://u:{SECRET}@h", f"http://{SECRET}@h", f"http://h/?key={SECRET}",
                                 f"http://h/#{SECRET}", f"ftp://u:{SECRET}@h"])  # fmt: skip
def test_a_secret_in_the_url_is_refused_without_being_told(url):
    with pytest.raises(InputError) as error:
        base_url(url)
    assert SECRET not in str(error.value)


def test_the_key_comes_from_the_variable_or_the_file_and_is_in_no_text(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", f" {SECRET}\n")
    path = tmp_path / "key"
    path.write_text(SECRET + "\n")
    for target in (target_of("http://h", "MY_KEY"), target_of("http://h", None, str(path))):
        assert target.api_key == SECRET
        assert SECRET not in repr(target)
        assert SECRET not in str(target)
    monkeypatch.setenv("DRAFTCAST_API_KEY", "other")
    assert target_of("http://h").api_key == "other"
    monkeypatch.delenv("DRAFTCAST_API_KEY")
    assert target_of("http://h") == Target("http://h", None)


def test_keys_that_cannot_be_are_refused_without_being_told(tmp_path, monkeypatch):
    monkeypatch.setenv("BAD", f"{SECRET} two words")
    monkeypatch.setenv("EMPTY", " ")
    large = tmp_path / "large"
    large.write_text("x" * 100_000)
    for arguments in (("BAD",), ("EMPTY",), ("NOT_SET",), (None, str(large)), (None, str(tmp_path)), (None, "/no/such"),
                      ("BAD", str(large))):  # fmt: skip
        with pytest.raises(InputError) as error:
            target_of("http://h", *arguments)
        assert SECRET not in str(error.value)
        assert "allowed" in str(error.value)


def test_a_key_file_that_everybody_can_write_is_refused(tmp_path):
    path = tmp_path / "key"
    path.write_text(SECRET)
    os.chmod(path, 0o666)
    with pytest.raises(InputError, match="chmod 600"):
        target_of("http://h", None, str(path))


def test_a_named_pipe_is_no_key_file_and_nobody_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        target_of("http://h", None, str(tmp_path / "pipe"))


@pytest.mark.parametrize("key", ["a\nb", "a\rX: y", "schlüssel", "\0", "two words"])
def test_a_key_that_no_header_can_carry_is_one_line_without_the_key(key):
    with pytest.raises(InputError) as caught:
        target_with("http://h", key)
    assert key not in str(caught.value)


def test_no_key_and_an_empty_one_are_the_same():
    assert target_with("http://h/v1", None) == target_with("http://h", "") == Target("http://h")
