"""One log line: bytes to record and back, and the check value that chains lines (01 §2; DESIGN §4).

Does not know files, ordinals of neighbours or what a record means.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import xxhash
from unspool_protocol.log import NewRecord, Record

BOM = b"\xef\xbb\xbf"
_CHECK_MARK = b',"check":"'
_CHECK_SUFFIX = re.compile(rb',"check":"([0-9a-f]{16})"\}$')
_CHECK_LENGTH = len(_CHECK_MARK) + 16 + 2
_KNOWN_MEMBERS = frozenset({"timestamp", "ordinal", "type", "payload", "metadata", "check"})
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """What one line holds: its objects with the bytes each came from, and the kind of fault, if any."""

    objects: tuple[tuple[Mapping[str, Any], bytes], ...] = ()
    fault: str | None = None
    detail: str = ""


_BLANK = ParsedLine()


def parse_line(line: bytes) -> ParsedLine:
    """Read one line without its line feed.

    Blank lines hold nothing and are no fault. Carriage returns and zero bytes around the object (what a power cut
    leaves behind) are dropped. A line that is exactly several objects yields them all, with the fault `gluedRecords`.
    Never raises.
    """
    raw = line.strip(b" \t\r\0")
    if not raw:
        return ParsedLine(fault="zeroBytes") if b"\0" in line else _BLANK
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _parse_refused(raw)
    return _one_object(value, raw)


def _one_object(value: Any, raw: bytes) -> ParsedLine:
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        return ParsedLine(((value, raw),))
    return ParsedLine(fault="notARecord", detail="no object with a type")


def _parse_refused(raw: bytes) -> ParsedLine:
    """What orjson refuses: lone surrogates, a byte order mark, glued records, bytes that are no UTF-8, or worse."""
    raw = raw.removeprefix(BOM)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return _parse_mended(raw, error)
    return _parse_text(text)


def _parse_mended(raw: bytes, error: UnicodeDecodeError) -> ParsedLine:
    """A record some of whose text is no UTF-8 is still a record; each bad place shows as U+FFFD."""
    parsed = _parse_text(raw.decode(errors="replace"))
    if len(parsed.objects) != 1:
        return ParsedLine(fault="invalidUtf8", detail=error.reason)
    return ParsedLine(((parsed.objects[0][0], raw),), "mendedUtf8", error.reason)


def _parse_text(text: str) -> ParsedLine:
    objects: list[tuple[Mapping[str, Any], bytes]] = []
    at = 0
    try:
        while at < len(text):
            value, end = _DECODER.raw_decode(text, at)
            parsed = _one_object(_without_surrogates(value), text[at:end].encode())
            if parsed.fault is not None:
                return parsed
            objects.extend(parsed.objects)
            at = end + len(text[end:]) - len(text[end:].lstrip(" \t\r\0"))
    except (ValueError, RecursionError) as error:
        return ParsedLine(fault="invalidJson", detail=str(error)[:200])
    if len(objects) == 1:
        return ParsedLine(tuple(objects))
    return ParsedLine(tuple(objects), "gluedRecords", f"{len(objects)} records on one line")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _without_surrogates(value: Any) -> Any:
    """Replace half characters, which no UTF-8 message could carry on; the raw bytes keep them."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(part) for part in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(part) for key, part in value.items()}
    return value


def holds_half_character(line: bytes) -> bool:
    """Whether a readable line holds an escape for half a character: the strict reader refuses nothing else in it."""
    if b"\\u" not in line:
        return False
    try:
        orjson.loads(line.strip(b" \t\r\0").removeprefix(BOM))
    except orjson.JSONDecodeError:
        return True
    return False


def line_ordinal(value: Mapping[str, Any]) -> int | None:
    """The line's own `ordinal`, None where it is missing or no unsigned integer."""
    ordinal = value.get("ordinal")
    return ordinal if type(ordinal) is int and ordinal >= 0 else None


def record_of(value: Mapping[str, Any], raw: bytes, rollout_id: str, ordinal: int) -> Record:
    """Build the lenient envelope; ill-shaped members become empty ones."""
    payload, metadata, timestamp = value.get("payload"), value.get("metadata"), value.get("timestamp")
    extra = {key: part for key, part in value.items() if key not in _KNOWN_MEMBERS}
    return Record(
        rollout_id=rollout_id,
        ordinal=ordinal,
        type=value["type"],
        payload=payload if isinstance(payload, dict) else {},
        timestamp=timestamp if isinstance(timestamp, str) else "",
        metadata=metadata if isinstance(metadata, dict) else None,
        extra=extra,
        raw=raw,
    )


@dataclass(frozen=True, slots=True)
class EncodedRecord:
    """A record whose JSON is known to be possible; only time, ordinal and check value are still open."""

    tail: bytes
    foreign: bytes | None = None


def encode_record(record: NewRecord) -> EncodedRecord:
    """Encode everything except timestamp, ordinal and check.

    Raises:
        TypeError: JSON cannot hold the record.
    """
    if record.raw is not None:
        if b"\n" in record.raw:
            raise TypeError("a raw line holds a line feed")
        return EncodedRecord(b"", record.raw)
    members: dict[str, Any] = {"type": record.type, "payload": record.payload}
    if record.metadata is not None:
        members["metadata"] = record.metadata
    for key, value in (record.extra or {}).items():
        if key in _KNOWN_MEMBERS:
            raise TypeError(f"extra member {key!r} is taken")
        members[key] = value
    return EncodedRecord(_dumps(members)[1:-1])


def _dumps(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=_plain)
    except TypeError:
        # Half characters and integers beyond 64 bits are JSON all the same; anything else is refused here too.
        try:
            return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain).encode()
        except (ValueError, RecursionError) as error:
            raise TypeError(str(error)) from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def seal_line(encoded: EncodedRecord, *, timestamp: str, ordinal: int | None, previous: bytes) -> bytes:
    """The finished line without its line feed.

    Args:
        ordinal: None in legacy logs, whose lines carry none.
        previous: `chain_link` of the line before, `b""` for the first line of a file.
    """
    if encoded.foreign is not None:
        return encoded.foreign
    number = b"" if ordinal is None else b'"ordinal":%d,' % ordinal
    body = b'{"timestamp":"%b",%b%b' % (timestamp.encode(), number, encoded.tail)
    return b'%b%b%b"}' % (body, _CHECK_MARK, _check_value(previous, body))


def _check_value(previous: bytes, body: bytes) -> bytes:
    digest = xxhash.xxh3_64()
    digest.update(previous)
    digest.update(body)
    return digest.hexdigest().encode()


def chain_link(line: bytes) -> bytes:
    """What the next line's check value covers of this one: its check value, or all of a line without one."""
    line = line.rstrip(b"\r\n")
    found = _CHECK_SUFFIX.search(line[-_CHECK_LENGTH:])
    return found.group(1) if found else line


def verify_check(previous: bytes, line: bytes) -> bool | None:
    """Whether a line's check value is right, without decoding it; None when it carries none.

    Args:
        previous: `chain_link` of the line before it.
    """
    line = line.rstrip(b"\r\n")
    found = _CHECK_SUFFIX.search(line[-_CHECK_LENGTH:])
    if not found:
        return None
    return _check_value(previous, line[:-_CHECK_LENGTH]) == found.group(1)


def resealed(previous: bytes, line: bytes) -> bytes:
    """A line with its check value made to fit what now stands before it; a line without one is left as it is.

    Args:
        previous: `chain_link` of the line before it.
    """
    found = _CHECK_SUFFIX.search(line[-_CHECK_LENGTH:])
    if not found:
        return line
    body = line[:-_CHECK_LENGTH]
    return b'%b%b%b"}' % (body, _CHECK_MARK, _check_value(previous, body))


def line_digest(line: bytes) -> str:
    """A short value that identifies a line: its check value, or a hash of its bytes."""
    link = chain_link(line)
    return link.decode() if len(link) == 16 and link != line else xxhash.xxh3_64_hexdigest(link)
