"""The right to write to a thread: advisory file locks, the reference's (02 §7) and one beside the logs.

The reference locks `thread-writer-locks/<threadId>.lock` in the home. Two homes may share one sessions folder, so a
second lock lies in the sessions folder itself. The system releases both when the process ends, however it ends.
"""

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

import orjson

from ..errors import WriterHeld

REFERENCE_FOLDER = "thread-writer-locks"
BESIDE_FOLDER = ".locks"
_COORDINATION = ".coordination.lock"
_COORDINATION_TRIES = 200
_COORDINATION_PAUSE_S = 0.01


class FileLease:
    """Both locks of one thread, held. The file beside the logs tells who holds it, and the epoch."""

    def __init__(self, reference_fd: int, beside_fd: int) -> None:
        self._fds = [reference_fd, beside_fd]
        self._epoch = _read_note(beside_fd).get("epoch", 0)
        self.renew()

    @property
    def epoch(self) -> int:
        """Rises with every writer of the thread, in this and other processes."""
        return self._epoch

    def renew(self) -> int:
        """Begin a new epoch."""
        self._epoch += 1
        with suppress(OSError):
            # The note helps people and numbers writers; a full disk must not keep anybody from the lock.
            _write_note(self._fds[1], {"pid": os.getpid(), "epoch": self._epoch})
        return self._epoch

    def release(self) -> None:
        """Give both locks back."""
        fds, self._fds = self._fds, []
        for fd in reversed(fds):
            os.close(fd)


def acquire(home: Path, sessions: Path, thread_id: str) -> FileLease:
    """Take both locks without waiting for a holder.

    Raises:
        WriterHeld: Somebody has one of them.
        OSError: The folders cannot be written.
    """
    folder = home / REFERENCE_FOLDER
    beside = sessions / BESIDE_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    beside.mkdir(parents=True, exist_ok=True)
    note_path = beside / f"{thread_id}.lock"
    coordination = _open(folder / _COORDINATION)
    try:
        _lock_soon(coordination)
        reference_fd = _take(folder / f"{thread_id}.lock", thread_id, note_path)
        try:
            beside_fd = _take(note_path, thread_id, note_path)
        except BaseException:
            os.close(reference_fd)
            raise
        return FileLease(reference_fd, beside_fd)
    finally:
        os.close(coordination)


def held_threads(home: Path, sessions: Path) -> dict[str, str]:
    """Threads that somebody writes to now, and who, as far as it is known. Makes nothing and keeps nobody waiting.

    A file that nobody holds says nothing, however old it is: the lock is the system's, not the file's.
    """
    folder, held = home / REFERENCE_FOLDER, {}
    try:
        coordination = os.open(folder / _COORDINATION, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        _lock_soon(coordination)
        for path in sorted(folder.glob("[!.]*.lock")):
            if _is_held(path):
                held[path.stem] = _holder(sessions / BESIDE_FOLDER / path.name) or "another process"
    finally:
        os.close(coordination)
    return held


def _is_held(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _lock_soon(fd: int) -> None:
    """The coordination lock is held for moments only; one that stays held is no reason to hang for ever."""
    for _ in range(_COORDINATION_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            time.sleep(_COORDINATION_PAUSE_S)
        else:
            return


def _take(path: Path, thread_id: str, note_path: Path) -> int:
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise WriterHeld(thread_id, _holder(note_path)) from error
        raise
    return fd


def _holder(path: Path) -> str | None:
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            pid = _read_note(fd).get("pid")
        finally:
            os.close(fd)
        return f"process {pid}" if pid else None
    return None


def _read_note(fd: int) -> dict[str, int]:
    try:
        note = orjson.loads(os.pread(fd, 4096, 0))
    except (orjson.JSONDecodeError, OSError):
        return {}
    numbers = note if isinstance(note, dict) else {}
    return {key: value for key, value in numbers.items() if type(value) is int}


def _write_note(fd: int, note: dict[str, int]) -> None:
    content = orjson.dumps(note) + b"\n"
    os.pwrite(fd, content, 0)
    os.ftruncate(fd, len(content))
