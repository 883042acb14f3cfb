"""One line at a time: decoding what is odd, encoding, and the chain of check values."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unspool_protocol.log import NewRecord
from unspool_server.store.lines import (
    chain_link,
    encode_record,
    line_digest,
    line_ordinal,
    parse_line,
    record_of,
    seal_line,
    verify_check,
)

GOOD = b'{"type":"event_msg","payload":{"text":"a"}}'


@pytest.mark.parametrize("line", [b"", b"   ", b"\r", b"\t \r"])
def test_blank_lines_hold_nothing_and_are_no_fault(line: bytes) -> None:
    parsed = parse_line(line)
    assert (parsed.objects, parsed.fault) == ((), None)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"garbage", "invalidJson"),
        (b'{"type":"event_msg","payload":{"te', "invalidJson"),
        (b"\0" * 64, "zeroBytes"),
        (b'{"type":"a","n":NaN}', "invalidJson"),
        (b"[" * 100_000, "invalidJson"),
        (GOOD + b"x", "invalidJson"),
        (GOOD + b'{"type":"event', "invalidJson"),
        (b"[1]", "notARecord"),
        (b"{}", "notARecord"),
        (b'{"type":7}', "notARecord"),
        (GOOD + b"7", "notARecord"),
        (b'{"type":"a","t":"\xff', "invalidUtf8"),
        (b'{"type":"event_msg","message":"\xf0\x9f', "invalidUtf8"),
    ],
)
def test_a_line_that_is_no_record_is_one_fault(line: bytes, fault: str) -> None:
    parsed = parse_line(line)
    assert (parsed.objects, parsed.fault) == ((), fault)


@pytest.mark.parametrize("line", [GOOD + b"\r", b"\0\0" + GOOD, GOOD + b"\0" * 9, b"\xef\xbb\xbf" + GOOD, b"  " + GOOD])
def test_what_surrounds_a_whole_record_does_not_matter(line: bytes) -> None:
    [(value, raw)] = parse_line(line).objects
    assert value["payload"] == {"text": "a"}
    assert raw == GOOD


def test_records_glued_on_one_line_are_all_recovered_and_reported() -> None:
    second = '{"type":"b","payload":{"text":"é漢😀"}}'.encode()
    parsed = parse_line(GOOD + second + b" " + GOOD)
    assert parsed.fault == "gluedRecords"
    assert [raw for _, raw in parsed.objects] == [GOOD, second, GOOD]


def test_a_record_with_bytes_that_are_no_utf8_is_mended_and_reported() -> None:
    line = b'{"type":"a","payload":{"text":"x\xffy"}}'
    parsed = parse_line(line)
    [(value, raw)] = parsed.objects
    assert (value["payload"], raw, parsed.fault) == ({"text": "x\ufffdy"}, line, "mendedUtf8")


def test_a_half_character_is_read_and_its_bytes_kept() -> None:
    line = b'{"type":"a","payload":{"text":"x\\ud800y","list":["\\udc00"]}}'
    parsed = parse_line(line)
    [(value, raw)] = parsed.objects
    assert parsed.fault is None
    assert value["payload"] == {"text": "x\ufffdy", "list": ["\ufffd"]}
    assert raw == line
    orjson.dumps(value)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\u00a0"])
def test_unicode_line_separators_do_not_end_a_line(separator: str) -> None:
    sealed = _seal(NewRecord("event_msg", {"text": f"a{separator}b"}))
    [(value, _)] = parse_line(sealed).objects
    assert value["payload"]["text"] == f"a{separator}b"
    assert b"\n" not in sealed


def test_ill_shaped_members_become_empty_ones() -> None:
    line = b'{"type":"a","payload":[1],"metadata":"m","timestamp":5,"ordinal":true,"more":{"x":1}}'
    [(value, raw)] = parse_line(line).objects
    record = record_of(value, raw, "r", 7)
    assert (record.payload, record.metadata, record.timestamp, record.extra) == ({}, None, "", {"more": {"x": 1}})
    assert line_ordinal(value) is None


def _seal(record: NewRecord, ordinal: int | None = 3, previous: bytes = b"") -> bytes:
    return seal_line(encode_record(record), timestamp="2026-01-02T03:04:05.678Z", ordinal=ordinal, previous=previous)


def test_members_stand_in_the_agreed_order() -> None:
    line = _seal(NewRecord("t", {"a": 1}, metadata={"m": 2}, extra={"unspool": {"u": 3}}))
    assert line.startswith(
        b'{"timestamp":"2026-01-02T03:04:05.678Z","ordinal":3,"type":"t","payload":{"a":1},'
        b'"metadata":{"m":2},"unspool":{"u":3},"check":"'
    )
    assert len(chain_link(line)) == 16


def test_check_values_chain_lines_also_behind_foreign_and_torn_ones() -> None:
    first = _seal(NewRecord("a", {}))
    second = _seal(NewRecord("b", {}), 4, chain_link(first))
    assert verify_check(b"", first) is verify_check(chain_link(first), second) is True
    assert verify_check(chain_link(second), second) is False
    assert verify_check(b"", second) is False
    third = _seal(NewRecord("c", {}), 5, chain_link(b'{"type":"torn'))
    assert verify_check(b'{"type":"torn', third) is True
    assert verify_check(b"", GOOD) is None


def test_a_changed_byte_breaks_the_check() -> None:
    line = _seal(NewRecord("a", {"text": "hello"}))
    assert verify_check(b"", line.replace(b"hello", b"hellO")) is False


def test_digests_tell_lines_apart() -> None:
    first, second = _seal(NewRecord("a", {})), _seal(NewRecord("b", {}))
    assert len({line_digest(first), line_digest(second), line_digest(GOOD)}) == 3
    assert line_digest(first).encode() == chain_link(first)


def test_members_of_the_envelope_cannot_be_smuggled_in() -> None:
    with pytest.raises(TypeError):
        encode_record(NewRecord("a", {}, extra={"ordinal": 9}))
    with pytest.raises(TypeError):
        encode_record(NewRecord("a", {}, raw=b"two\nlines"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=6), JSON, max_size=5))
def test_any_json_payload_survives_a_line(payload: dict[str, object]) -> None:
    line = _seal(NewRecord("t", payload))
    [(value, raw)] = parse_line(line).objects
    assert value["payload"] == payload
    assert raw == line
    assert verify_check(b"", line) is True


@given(st.binary(max_size=80))
def test_no_bytes_make_the_parser_raise(line: bytes) -> None:
    parsed = parse_line(line.replace(b"\n", b" "))
    assert parsed.fault is not None or all(isinstance(value["type"], str) for value, _ in parsed.objects)
