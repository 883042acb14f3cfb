"""Rollouts as files below a home folder (01 §4): scanning, exclusive creation, archive, compressed twins, side files.

Blocking throughout; the store runs it in worker threads. Side files are hidden, so that other readers of the format
pass them over.
"""

import asyncio
import errno
import io
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

from . import locks
from .memory_blob import MemoryBlob
from .names import Entry
from .shelf import Blob

T = TypeVar("T")
_RACY_NS = 50_000_000
"""A folder that changed this shortly before it was scanned may change again without its time stamp moving."""
_FOLDER_LEVELS = 5
"""Day, month, year, `sessions` and the home."""
_ABSENT, _UNSETTLED = -1, -2
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


class FileBlob:
    """See `shelf.Blob`: a file opened for reading, or for reading and appending."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        flags = os.O_RDWR | os.O_APPEND if writable else os.O_RDONLY
        self._path = path
        self._name_synced = False
        self._fd = -1
        self._fd = os.open(path, flags | os.O_CLOEXEC)

    def size(self) -> int:
        """The file's size now."""
        return os.fstat(self._fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset`."""
        parts: list[bytes] = []
        while length > 0 and (part := os.pread(self._fd, length, offset)):
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def append(self, content: bytes) -> int:
        """Hand bytes to the system; it may take fewer. A file that was removed is refused: nobody would find them."""
        if os.fstat(self._fd).st_nlink == 0:
            raise OSError(errno.ESTALE, "the file was removed")
        return os.write(self._fd, content)

    def truncate(self, size: int) -> None:
        """Cut back to a size."""
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """fsync the file and, the first time, the folders that lead to it."""
        os.fsync(self._fd)
        if not self._name_synced:
            _sync_folders(self._path)
            self._name_synced = True

    def rewrite(self, offset: int, content: bytes) -> None:
        """Write the same bytes in place; needs a handle of its own, since this one only appends."""
        fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, content, offset)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        """A reader that was cancelled while the file was being opened never gets to close it."""
        self.close()


class LocalShelf:
    """See `shelf.Shelf`: one home folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.sessions = home / "sessions"
        self.archive = home / "archived_sessions"
        self._listings: dict[Path, tuple[int, list[str]]] | None = None

    async def run(self, call: Callable[[], T]) -> T:
        """Run a blocking call in a worker thread."""
        return await asyncio.to_thread(call)

    def scan(self) -> list[Entry]:
        """Every rollout by name: dated folders below `sessions`, and the flat archive.

        Folders that have not changed since the last scan are not listed again.
        """
        entries: list[Entry] = []
        listings: dict[Path, tuple[int, list[str]]] = {}
        self._scan_dated(self.sessions, "", 3, entries, listings)
        for name in self._names(self.archive, listings, folders_only=False):
            entry = Entry.parse(name, archived=True)
            if entry is not None:
                entries.append(entry)
        self._listings = listings
        return entries

    def _scan_dated(
        self, folder: Path, relative: str, depth: int, entries: list[Entry], listings: dict[Path, tuple[int, list[str]]]
    ) -> None:
        for name in self._names(folder, listings, folders_only=depth > 0):
            if depth:
                below = f"{relative}/{name}" if relative else name
                self._scan_dated(folder / name, below, depth - 1, entries, listings)
            else:
                entry = Entry.parse(name, folder=relative)
                if entry is not None:
                    entries.append(entry)

    def _names(self, folder: Path, listings: dict[Path, tuple[int, list[str]]], *, folders_only: bool) -> list[str]:
        now = time.time_ns()
        stamp = _stamp(folder)
        known = (self._listings or {}).get(folder)
        fresh = known is not None and known[0] == stamp
        names = known[1] if known is not None and fresh else _list_folder(folder, folders_only=folders_only)
        listings[folder] = (stamp if now - stamp > _RACY_NS else _UNSETTLED, names)
        return names

    def changed(self) -> bool:
        """Whether a folder's time stamp moved since the last scan."""
        listings = self._listings
        return listings is None or any(_stamp(folder) != stamp for folder, (stamp, _) in listings.items())

    def path(self, entry: Entry) -> Path:
        """Where a rollout lies."""
        return self.home / entry.relative_path

    def stat(self, entry: Entry) -> tuple[int, int]:
        """Size and time of the last change; a compressed rollout's size is that of its file."""
        found = self.path(entry).stat()
        return found.st_size, found.st_mtime_ns

    def stat_all(self, entries: Sequence[Entry]) -> list[tuple[int, int] | None]:
        """The same of many rollouts, None for those that are gone."""
        found: list[tuple[int, int] | None] = []
        home = str(self.home)
        for entry in entries:
            place = "archived_sessions" if entry.archived else f"sessions/{entry.folder}"
            try:
                # Plain strings: a home may hold thousands of logs, and this runs for every list.
                status = os.stat(f"{home}/{place}/{entry.file_name}")  # noqa: PTH116
            except OSError:
                found.append(None)
            else:
                found.append((status.st_size, status.st_mtime_ns))
        return found

    def open(self, entry: Entry, *, writable: bool = False) -> Blob:
        """Open a rollout; compressed ones are unpacked into memory for reading."""
        path = self.path(entry)
        if not entry.compressed:
            return FileBlob(path, writable=writable)
        if writable:
            raise OSError(errno.EROFS, "compressed")
        return MemoryBlob(decompressed(path))

    def unpack(self, entry: Entry) -> Entry:
        """Write the plain form, synced, link it in place, then remove the compressed one (01 §4)."""
        plain = replace(entry, compressed=False)
        with suppress(FileExistsError):
            self._create(self.path(plain), decompressed(self.path(entry)), sync=True)
        self.path(entry).unlink(missing_ok=True)
        return plain

    def publish(self, entry: Entry, content: bytes, *, sync: bool) -> None:
        """Create the file whole or not at all. Raises FileExistsError."""
        self._create(self.path(entry), content, sync=sync)

    def _create(self, path: Path, content: bytes, *, sync: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{token_hex(4)}.tmp")
        try:
            _write_new(temporary, content, sync=sync)
            try:
                os.link(temporary, path)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                _write_new(path, content, sync=sync)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        if sync:
            _sync_folders(path)

    def move(self, entry: Entry, *, archived: bool) -> Entry:
        """Rename into the flat archive or back into the dated folder that the name asks for."""
        moved = replace(entry, archived=archived, folder=entry.dated_folder)
        target = self.path(moved).parent
        target.mkdir(parents=True, exist_ok=True)
        sources = self._family(entry)
        if any((target / source.name).exists() for source in sources):
            raise FileExistsError(errno.EEXIST, "a log of that name is there already")
        for source in sources:
            source.rename(target / source.name)
        return moved

    def remove(self, entry: Entry) -> None:
        """Unlink a rollout with its twin and side files."""
        for path in reversed(self._family(entry)):
            path.unlink(missing_ok=True)

    def _family(self, entry: Entry) -> list[Path]:
        """The rollout first, then what belongs to it."""
        plain = self.path(replace(entry, compressed=False))
        twins = [path for path in (plain, plain.with_name(f"{plain.name}.zst")) if path.exists()]
        return [*twins, *sorted(plain.parent.glob(f".{plain.name}.*"))]

    def read_side(self, entry: Entry, name: str) -> bytes | None:
        """A side file's content, None where there is none."""
        try:
            return self._side_path(entry, name).read_bytes()
        except OSError:
            return None

    def write_side(self, entry: Entry, name: str, content: bytes) -> None:
        """Replace a side file in one step."""
        path = self._side_path(entry, name)
        temporary = path.with_name(f"{path.name}.{token_hex(4)}.tmp")
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def _side_path(self, entry: Entry, name: str) -> Path:
        plain = self.path(replace(entry, compressed=False))
        return plain.with_name(f".{plain.name}.{name}")

    def lease(self, thread_id: str) -> locks.FileLease:
        """Take the writer lock. Raises WriterHeld, OSError."""
        return locks.acquire(self.home, self.sessions, thread_id)


def _stamp(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return _ABSENT


def _list_folder(folder: Path, *, folders_only: bool) -> list[str]:
    try:
        with os.scandir(folder) as found:
            return [each.name for each in found if not each.name.startswith(".") and each.is_dir() == folders_only]
    except OSError:
        return []


def decompressed(path: Path) -> bytes:
    """The content of a compressed log. Raises OSError."""
    # Imported here: few homes hold compressed logs, and a daemon that starts for one job should not pay for it.
    import zstandard

    unpacked = io.BytesIO()
    try:
        with path.open("rb") as packed:
            zstandard.ZstdDecompressor().copy_stream(packed, unpacked)
    except zstandard.ZstdError as error:
        raise OSError(errno.EIO, "the compressed log is damaged") from error
    return unpacked.getvalue()


def _write_new(path: Path, content: bytes, *, sync: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            os.fsync(fd)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(fd)


def _sync_folders(path: Path) -> None:
    """A new file lies in a dated folder, which may be new in its parent, and so on up to the home."""
    for folder in list(path.parents)[:_FOLDER_LEVELS]:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
