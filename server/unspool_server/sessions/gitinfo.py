"""Facts of the git repository around a folder, read from its files without running git (01 §3.1)."""

import configparser
from pathlib import Path
from typing import Any


def git_facts(cwd: str) -> dict[str, Any] | None:
    """Commit, branch and origin address as `session_meta.git` shows them; None outside a repository.

    A folder that cannot be looked at is outside, whatever the reason: no access, too long a name, a loop of links.
    """
    try:
        return _git_facts(cwd)
    except (OSError, ValueError, RuntimeError):
        return None


def _git_facts(cwd: str) -> dict[str, Any] | None:
    folder = _git_folder(Path(cwd))
    if folder is None:
        return None
    facts: dict[str, Any] = {}
    head = _read(folder / "HEAD")
    if head is not None and head.startswith("ref: "):
        ref = head[5:]
        facts["branch"] = ref.removeprefix("refs/heads/")
        commit = _read(_common(folder) / ref) or _packed(_common(folder), ref)
    else:
        commit = head
    if commit:
        facts["commit_hash"] = commit
    if (url := _origin(_common(folder))) is not None:
        facts["repository_url"] = url
    return facts or None


def _git_folder(cwd: Path) -> Path | None:
    for folder in (cwd, *cwd.parents):
        place = folder / ".git"
        if place.is_dir():
            return place
        if place.is_file() and (text := _read(place)) is not None and text.startswith("gitdir: "):
            return (folder / text[8:]).resolve()
    return None


def _common(folder: Path) -> Path:
    shared = _read(folder / "commondir")
    return (folder / shared).resolve() if shared else folder


def _packed(folder: Path, ref: str) -> str | None:
    for line in (_read(folder / "packed-refs") or "").splitlines():
        commit, _, name = line.partition(" ")
        if name == ref:
            return commit
    return None


def _origin(folder: Path) -> str | None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    try:
        parser.read(folder / "config", encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):
        return None
    return parser.get('remote "origin"', "url", fallback=None)


def _read(path: Path) -> str | None:
    try:
        if not path.is_file():  # a pipe or device would never end
            return None
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):
        return None
