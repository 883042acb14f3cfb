"""The token of a home: made once, kept from others, found by clients of this machine and by nobody else's server."""

import os
import stat
import threading
from pathlib import Path

import pytest
from unspool_client.errors import ConnectFailed
from unspool_client.tokens import find_token
from unspool_server.access.secret_files import TOKEN_FILE, SecretRefused, home_token, read_secret


def test_a_token_is_made_once_random_and_private(tmp_path: Path) -> None:
    token = home_token(tmp_path / "new" / "home")
    assert len(token) >= 43 and token.isascii()
    assert home_token(tmp_path / "new" / "home") == token
    assert home_token(tmp_path / "other") != token
    path = tmp_path / "new" / "home" / TOKEN_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == [TOKEN_FILE]


def test_whatever_the_umask_the_file_is_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        home_token(tmp_path)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / TOKEN_FILE).stat().st_mode) == 0o600


def test_those_who_ask_at_the_same_time_get_the_same_token(tmp_path: Path) -> None:
    found: list[str] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait(5)
        found.append(home_token(tmp_path))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(5)
    assert len(found) == 8 and len(set(found)) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o620])
def test_a_token_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    token = home_token(tmp_path)
    (tmp_path / TOKEN_FILE).chmod(mode)
    with pytest.raises(SecretRefused, match="can be read by others") as refused:
        home_token(tmp_path)
    assert token not in str(refused.value)


def test_links_folders_pipes_and_files_without_a_token_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere"
    secret.write_text("x" * 64)
    secret.chmod(0o600)
    cases = {name: tmp_path / name for name in ("link", "dangling", "folder", "pipe", "empty", "short", "binary")}
    for home in cases.values():
        home.mkdir()
    (cases["link"] / TOKEN_FILE).symlink_to(secret)
    (cases["dangling"] / TOKEN_FILE).symlink_to(tmp_path / "nowhere")
    (cases["folder"] / TOKEN_FILE).mkdir(mode=0o700)
    os.mkfifo(cases["pipe"] / TOKEN_FILE, 0o600)
    for name, content in (("empty", b""), ("short", b"abc"), ("binary", b"\xff" * 64)):
        (cases[name] / TOKEN_FILE).write_bytes(content)
        (cases[name] / TOKEN_FILE).chmod(0o600)
    for home in cases.values():
        with pytest.raises(SecretRefused):
            home_token(home)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_token_of_another_user_is_refused(tmp_path: Path) -> None:
    home_token(tmp_path)
    os.chown(tmp_path / TOKEN_FILE, 12345, 12345)
    with pytest.raises(SecretRefused, match="another user"):
        home_token(tmp_path)


def test_secrets_of_flags_are_read_without_the_blanks_around_them(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("  tok \n")
    assert read_secret(path) == "tok"
    for content, words in ((b" \n", "must not be empty"), (b"\xff\xfe", "is no text"), (b"x" * 70_000, "is too long")):
        path.write_bytes(content)
        with pytest.raises(SecretRefused, match=words):
            read_secret(path)
    with pytest.raises(SecretRefused, match="failed to read websocket auth secret"):
        read_secret(tmp_path / "nothing")


def test_clients_take_the_named_file_then_the_variable_then_the_homes_token(tmp_path: Path) -> None:
    token = home_token(tmp_path)
    named = tmp_path / "named"
    named.write_text("from-file\n")
    env = {"UNSPOOL_HOME": str(tmp_path), "UNSPOOL_TOKEN": "from-variable"}
    here = "ws://127.0.0.1:4500"
    assert find_token(here, token_file=named, environ=env) == "from-file"
    assert find_token(here, environ=env) == "from-variable"
    del env["UNSPOOL_TOKEN"]
    assert find_token(here, environ=env) == token
    assert find_token(here, home=tmp_path, environ={}) == token
    assert find_token(here, home=tmp_path / "none", environ={}) is None
    for url in ("ws://192.0.2.1:4500", "wss://example.org", "ws://127.0.0.1.example.org", "unix:///run/x.sock"):
        assert find_token(url, environ=env) is None
    named.write_text("\n")
    for path in (named, tmp_path / "nothing"):
        with pytest.raises(ConnectFailed):
            find_token(here, token_file=path, environ=env)
