"""Thread ids that a caller may not know of are exchanged for ids that no thread has, and back in what it is answered.

Whatever a method does with an unknown thread, it then does with one that the caller must not see: same text, same data,
same result, same work. No method needs to know of tenants for that, and none can forget to ask.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass, field
from uuid import UUID

_BODY = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}"
_SPELLINGS = re.compile(rf"(?:urn:uuid:)?({_BODY})|\{{({_BODY})\}}", re.IGNORECASE)
_INSIDE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


def usual_spelling(thread_id: str) -> str | None:
    """An id in lower case with hyphens; None for what is no UUID in one of the spellings that the reference takes."""
    found = _SPELLINGS.fullmatch(thread_id)
    return str(UUID(found[1] or found[2])) if found else None


def ids_in(text: str) -> list[str]:
    """Every id in the name of a file, as it is spelled there."""
    return _INSIDE.findall(text)


@dataclass(slots=True)
class Disguise:
    """The exchanges of one request."""

    _back: dict[bytes, bytes] = field(default_factory=dict)

    def put_on(self, given: str, thread_id: str) -> str:
        """An id for `thread_id` that no thread has, in which letters stand for letters and digits for digits.

        So it can be spelled as `given` is, and both spellings lead back to what the caller wrote.
        """
        body = thread_id.replace("-", "")
        other = "".join(_stand_in(each, byte) for each, byte in zip(body, _noise(thread_id), strict=True))
        usual = str(UUID(other))
        spelled = _spelled_as(given, thread_id, other)
        self._back[usual.encode()] = thread_id.encode()
        self._back[spelled.encode()] = given.encode()
        return spelled

    def take_off(self, answer: bytes) -> bytes:
        """An encoded answer in which the caller finds what it wrote."""
        for false, true in self._back.items():
            answer = answer.replace(false, true)
        return answer


_SECRET = secrets.token_bytes(32)


def _noise(thread_id: str) -> bytes:
    """32 bytes, the same for one thread as long as the process lives: a repeated request stays the same request."""
    return hashlib.blake2b(thread_id.encode(), key=_SECRET, digest_size=32).digest()


def _stand_in(digit: str, byte: int) -> str:
    return "abcdef"[byte % 6] if digit.isalpha() else str(byte % 10)


def _spelled_as(given: str, thread_id: str, other: str) -> str:
    """`other`, 32 digits, with the case, hyphens and brackets of `given`."""
    start = given.lower().index(thread_id[:8])
    digits = iter(other)
    body = "".join(
        each if each not in "0123456789abcdefABCDEF" else next(digits).upper() if each.isupper() else next(digits)
        for each in given[start:]
    )
    return given[:start] + body
