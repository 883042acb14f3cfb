"""Where the token for a server comes from, when the caller names none.

A token from the home is only given to a server on this machine: whoever can read the file may as well use it there, and
nobody else shall get to see it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from unspool_client.errors import ConnectFailed

TOKEN_VARIABLE = "UNSPOOL_TOKEN"
TOKEN_FILE = "server-token"
"""In the home; the server makes it."""

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def find_token(
    url: str,
    *,
    token_file: str | Path | None = None,
    home: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> str | None:
    """The file that the caller names, else `UNSPOOL_TOKEN`, else the home's token for a server on this machine.

    Args:
        home: By default `UNSPOOL_HOME`, else the platform's data folder.

    Returns:
        None where there is none; the server says whether it wants one.

    Raises:
        ConnectFailed: The named file cannot be read or is empty.
    """
    env = os.environ if environ is None else environ
    if token_file is not None:
        return _named(Path(token_file))
    if given := env.get(TOKEN_VARIABLE, "").strip():
        return given
    try:
        parts = urlsplit(url)
    except ValueError:
        return None  # no address; the attempt to connect says so
    if parts.scheme not in ("ws", "wss") or parts.hostname not in LOOPBACK:
        return None
    try:
        return (_home(home, env) / TOKEN_FILE).read_text("utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None  # no token of this home, or not ours to read


def _named(path: Path) -> str:
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConnectFailed(f"cannot read the token file {path}", retryable=False) from error
    if not token:
        raise ConnectFailed(f"the token file {path} is empty", retryable=False)
    return token


def _home(home: str | Path | None, env: Mapping[str, str]) -> Path:
    chosen = home or env.get("UNSPOOL_HOME")
    if chosen:
        return Path(chosen).expanduser()
    # Imported here: most callers name a home or a token.
    import platformdirs

    return platformdirs.user_data_path("unspool", appauthor=False)
