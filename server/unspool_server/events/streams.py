"""The streams of all threads: those of loaded ones, and empty ones for threads that are only watched.

Knows which threads are loaded; who reads a stream is the hub's business.
"""

from collections.abc import Callable

from unspool_protocol.cursors import EventCursor

from unspool_server.events.stream import ThreadStream


class Streams:
    """A stream for each thread that somebody asked for.

    Args:
        make: Makes the empty stream of a thread.
    """

    def __init__(self, make: Callable[[str], ThreadStream]) -> None:
        self._make = make
        self._streams: dict[str, ThreadStream] = {}
        self._loaded: set[str] = set()

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the events that all streams hold."""
        return sum(stream.waiting_bytes for stream in self._streams.values())

    def of(self, thread_id: str) -> ThreadStream:
        """The thread's stream of now; an empty one where there was none."""
        stream = self._streams.get(thread_id)
        if stream is None:
            stream = self._streams[thread_id] = self._make(thread_id)
        return stream

    def find(self, thread_id: str) -> ThreadStream | None:
        """The thread's stream, if it has one."""
        return self._streams.get(thread_id)

    def is_loaded(self, thread_id: str) -> bool:
        """Whether events of the thread can come."""
        return thread_id in self._loaded

    def load(self, thread_id: str, position: EventCursor, at_ms: int) -> ThreadStream:
        """The thread was loaded; its log ends at a position."""
        stream = self.of(thread_id)
        stream.reset(position, at_ms)
        self._loaded.add(thread_id)
        return stream

    def unload(self, thread_id: str) -> ThreadStream | None:
        """The thread was unloaded; gives the stream that has ended, for those who are behind in it."""
        self._loaded.discard(thread_id)
        return self._streams.pop(thread_id, None)

    def after(self, old: ThreadStream | None, thread_id: str) -> ThreadStream:
        """Where readers of a stream that has ended go on: in that of now, which begins where the old one ended."""
        stream = self.of(thread_id)
        if stream.end is None and old is not None and old.end is not None:
            stream.reset(old.end, old.end.counter)
        return stream

    def drop_idle(self, thread_id: str) -> None:
        """Nobody follows the thread any more."""
        if thread_id not in self._loaded:
            self._streams.pop(thread_id, None)
