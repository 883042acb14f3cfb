"""What is kept of output, and how it is cut for the model: figures are the reference's own (07 §5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unspool_server.processes.output import KeptOutput, TextStream
from unspool_server.sessions.tools.shell_actions import command_actions
from unspool_server.sessions.tools.shell_texts import Captured, cut_output, exec_output, failed

NUMBERS = "".join(f"{number}\n" for number in range(1, 20001))


def captured(text: str) -> Captured:
    return Captured(text, len(text.encode()))


@given(st.lists(st.text(max_size=30), max_size=30), st.integers(2, 64))
def test_whatever_comes_head_and_tail_are_kept_within_the_bound_and_all_is_counted(
    pieces: list[str], bound: int
) -> None:
    kept, whole = KeptOutput(bound), "".join(pieces).encode("utf-8", "replace")
    for piece in pieces:
        kept.add(piece)
    assert kept.total_bytes == len(whole)
    assert kept.omitted_bytes == max(len(whole) - bound // 2 * 2, 0)
    text = kept.text()
    if not kept.omitted_bytes:
        assert text == whole.decode()
        return
    head, tail = text.split(f"\n... {kept.omitted_bytes} bytes omitted ...\n")
    assert whole.startswith(head.encode()) and whole.endswith(tail.encode())
    assert bound // 2 - 3 <= len(head.encode()) <= bound // 2
    assert bound // 2 - 3 <= len(tail.encode()) <= bound // 2


@given(st.binary(max_size=60), st.integers(1, 7))
def test_bytes_become_the_same_text_however_they_are_cut(raw: bytes, size: int) -> None:
    stream = TextStream()
    text = "".join(stream.feed(raw[start : start + size]) for start in range(0, len(raw), size)) + stream.end()
    assert text == raw.decode("utf-8", "replace")


def test_an_output_over_the_limit_shows_head_and_tail_and_counts_characters() -> None:
    cut = cut_output(captured(NUMBERS))
    assert cut.startswith(
        "Warning: truncated output (original token count: 27224)\nTotal output lines: 20000\n\n1\n2\n"
    )
    assert "1221\n12…98894 chars truncated…7\n19168\n" in cut
    assert cut.endswith("19999\n20000\n")


def test_a_limit_in_tokens_that_is_lower_counts_tokens() -> None:
    assert "69\n70…27124 tokens truncated…7\n19968\n" in cut_output(captured(NUMBERS), 100)
    assert cut_output(captured(NUMBERS), 100_000) == cut_output(captured(NUMBERS))
    assert cut_output(captured("abc"), 0).endswith("…1 tokens truncated…")


def test_cuts_fall_between_characters() -> None:
    cut = cut_output(captured("é€😀" * 3000 + "\n"))
    assert cut.startswith("Warning: truncated output (original token count: 6751)\nTotal output lines: 1\n\né€😀")
    assert "😀é€…5667 chars truncated…😀é€" in cut


def test_what_was_not_even_kept_is_told_in_place_of_the_lines() -> None:
    kept = KeptOutput()
    for number in range(40_000):
        kept.add(f"{number:08}{'y' * 71}\n")
    cut = cut_output(Captured(kept.text(), kept.total_bytes, kept.omitted_bytes))
    head = "Warning: truncated output (original token count: 800000)\n... 2151424 bytes omitted ...\n\n00000000yy"
    assert cut.startswith(head)
    assert "…1038607 chars truncated…" in cut


def test_outputs_have_the_form_that_models_know() -> None:
    output = exec_output(captured("one\n"), chunk_id="0a1b2c", wall_s=1.23456, state="Process exited with code 0")
    assert output.split("\n") == [
        "Chunk ID: 0a1b2c",
        "Wall time: 1.2346 seconds",
        "Process exited with code 0",
        "Original token count: 1",
        "Output:",
        "one",
        "",
    ]
    assert failed("no") == 'exec_command failed: CreateProcess { message: "Rejected(\\"no\\")" }'
    assert failed('say "no"').endswith(r'"Rejected(\"say \\\"no\\\"\")" }')


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("ls -la", [("listFiles", None)]),
        ("ls src && cat config | head -3", [("listFiles", "src"), ("read", "config")]),
        ("rg needle src", [("search", "src")]),
        ("touch x", [("unknown", None)]),
        ("cat x > y", [("unknown", None)]),
        ("ls; rm -rf /", [("unknown", None)]),
        ("cat $(rm x)", [("unknown", None)]),
        ("ls & rm x", [("unknown", None)]),
        ("cat 'a", [("unknown", None)]),
        ("cat " + "a" * 1_000_000, [("unknown", None)]),
        ("", [("unknown", None)]),
    ],
)
def test_only_plain_looking_is_shown_as_looking(line: str, kinds: list[tuple[str, str | None]]) -> None:
    assert [(action["type"], action.get("path")) for action in command_actions(line)] == kinds
