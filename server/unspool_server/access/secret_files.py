"""Files that hold secrets: the home's own token, made once and kept from others, and files that flags name.

A secret is read through a descriptor that was checked, never through a path that might have changed since.
"""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from unspool_server.errors import UnspoolError

TOKEN_FILE = "server-token"
"""In the home: the token that `unspool serve` demands, and that clients on the same machine find there."""

TOKEN_BYTES = 32
"""Of randomness in a token of ours."""

MAX_SECRET_BYTES = 64 * 1024
"""More is no secret but a wrong file."""


class SecretRefused(UnspoolError):
    """A file with a secret cannot be used. The message names the file and never its content."""


def home_token(home: Path) -> str:
    """The token of a home, made if there is none; equal for all processes that ask at the same time.

    Raises:
        SecretRefused: The file can be read by others, belongs to somebody else, or is no usable file.
    """
    path = home / TOKEN_FILE
    try:
        if not os.path.lexists(path):
            _make(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SecretRefused(f"cannot use the token file {path}: {error.strerror}") from error
    try:
        _check_private(path, os.fstat(descriptor))
        token = _stripped(os.read(descriptor, MAX_SECRET_BYTES + 1), path)
    finally:
        os.close(descriptor)
    if len(token) < TOKEN_BYTES or not token.isascii() or any(each.isspace() for each in token):
        raise SecretRefused(f"the token file {path} holds no token; remove it and a new one is made")
    return token


def _check_private(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SecretRefused(f"the token file {path} is no file")
    if found.st_uid != os.geteuid():
        raise SecretRefused(f"the token file {path} belongs to another user")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise SecretRefused(f"the token file {path} can be read by others; make it private: chmod 600 {path}")


def _make(path: Path) -> None:
    """Write a new token beside its place and link it there: whoever comes second finds the first one's whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{TOKEN_FILE}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(secrets.token_urlsafe(TOKEN_BYTES).encode() + b"\n")
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def read_secret(path: Path) -> str:
    """A secret from a file that a flag names, without blanks around it. Texts are the reference's.

    Raises:
        SecretRefused: Unreadable, empty, or no text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise SecretRefused(f"failed to read websocket auth secret {path}: {error.strerror}") from error
    return _stripped(content, path)


def _stripped(content: bytes, path: Path) -> str:
    try:
        secret = content.decode().strip()
    except UnicodeDecodeError:
        raise SecretRefused(f"websocket auth secret {path} is no text") from None
    if len(content) > MAX_SECRET_BYTES:
        raise SecretRefused(f"websocket auth secret {path} is too long")
    if not secret:
        raise SecretRefused(f"websocket auth secret {path} must not be empty")
    return secret
