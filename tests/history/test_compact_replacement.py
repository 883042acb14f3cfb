"""What compactions keep: the measured cases of budget and cut, the place of context and summary, the kept suffix."""

from typing import Any

import pytest
from unspool_protocol.log import HistoryMode, Record
from unspool_server.errors import InvalidParams
from unspool_server.history.boundaries import SUMMARY_PREFIX
from unspool_server.history.compact import (
    compacted_record,
    keep_last_replacement,
    legacy_rebuild,
    next_window,
    replacement_after_summary,
    summary_item,
)
from unspool_server.history.reconstruct import reconstruct
from unspool_server.history.state import PreviousSettings, Window
from unspool_server.history.tokens import estimate_tokens

from tests.history.logs import FIXTURES, read_rollout, rollout_paths
from tests.history.rows import ENVIRONMENT, message, parse_log, render_history

CONTEXT = [message("developer", "DEV"), message("user", ENVIRONMENT)]


def parts(item: Any) -> list[str]:
    return [part["text"] for part in item["content"]]


def kept(*items: Any) -> list[list[str]]:
    """The texts of the user messages that survive a compaction, summary left out."""
    return [parts(item) for item in replacement_after_summary(items, "s", [])[:-1]]


def user(*texts: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text} for text in texts]
    return {"type": "message", "role": "user", "content": content}


def sizes(texts: list[str]) -> list[int | str]:
    return [text if "truncated" in text else len(text.encode()) for text in texts]


def marker(count: int) -> str:
    return f"…{count} tokens truncated…"


def test_a_message_of_exactly_the_budget_is_kept_whole() -> None:
    assert [sizes(texts) for texts in kept(user("x" * 80_000))] == [[80_000]]


@pytest.mark.parametrize(("size", "missing"), [(80_001, 1), (80_005, 2)])
def test_a_message_over_the_budget_keeps_both_ends(size: int, missing: int) -> None:
    assert [sizes(texts) for texts in kept(user("x" * size))] == [[40_000, marker(missing), 40_000]]


def test_the_older_message_at_the_edge_is_cut_to_what_is_left() -> None:
    found = [sizes(texts) for texts in kept(user("a" * 40_001), user("b" * 40_000))]
    assert found == [[20_000, marker(1), 20_000], [40_000]]


def test_cuts_fall_on_character_borders() -> None:
    assert [sizes(texts) for texts in kept(user("é" * 50_000), user("abcd"))] == [[39_998, marker(5_001), 39_998], [4]]
    assert [sizes(texts) for texts in kept(user("€" * 30_000))] == [[39_999, marker(2_500), 39_999]]


def test_parts_keep_their_borders() -> None:
    found = kept(user("a" * 10_000, "b" * 90_000))
    assert [sizes(texts) for texts in found] == [[10_000, 30_000, marker(5_000), 40_000]]


def test_nothing_is_kept_once_the_budget_is_used_up_not_even_empty_messages() -> None:
    assert [sizes(texts) for texts in kept(user(""), user("x" * 80_000))] == [[80_000]]
    assert kept(user(""), user("x")) == [[""], ["x"]]


def test_images_and_their_tags_go_and_an_image_alone_leaves_an_empty_part() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA"}
    tagged = user('<image name=[Image #1] path="/p">')
    tagged["content"] += [image, {"type": "input_text", "text": "</image>"}, {"type": "input_text", "text": "look"}]
    alone = {"type": "message", "role": "user", "content": [image]}
    assert kept(alone, tagged) == [[""], ["look"]]


def test_context_stands_before_the_last_user_message_and_the_summary_last() -> None:
    history = [*CONTEXT, user("q1"), message("assistant", "a1"), user("q2"), message("assistant", "a2")]
    assert render_history(replacement_after_summary(history, "done", CONTEXT)) == (
        f"U(q1) D(DEV) E U(q2) U({SUMMARY_PREFIX}\ndone)"
    )


def test_without_user_messages_context_comes_before_the_summary() -> None:
    assert render_history(replacement_after_summary(CONTEXT, "done", CONTEXT)) == f"D(DEV) E U({SUMMARY_PREFIX}\ndone)"


def test_an_opaque_item_takes_the_place_of_the_summary_and_steered_input_follows() -> None:
    opaque = {"type": "compaction", "encrypted_content": "enc"}
    result = replacement_after_summary([user("q1")], opaque, CONTEXT, [user("more")])
    assert [item["type"] for item in result] == ["message", "message", "message", "compaction", "message"]
    assert parts(result[-1]) == ["more"]


def test_earlier_summaries_and_developer_notes_are_dropped_and_odd_ones_are_real() -> None:
    odd = [user(f" {SUMMARY_PREFIX}\nx"), user(SUMMARY_PREFIX), user("a", f"{SUMMARY_PREFIX}\nx"), user("  ")]
    history = [summary_item("old"), message("developer", "note"), *odd]
    assert kept(*history) == [parts(item) for item in odd]


@pytest.mark.parametrize("name", ["compact", "auto_compact_pre_turn", "compact_empty", "compact_remote", "agents_md"])
def test_recorded_replacements_are_those_that_the_reference_wrote(name: str) -> None:
    records = read_rollout(rollout_paths(FIXTURES / name)[0])
    index = next(index for index, record in enumerate(records) if record.type == "compacted")
    payload = records[index].payload
    expected = payload["replacement_history"]
    opaque = expected[-1] if expected[-1]["type"] == "compaction" else None
    known = {id_ for record in records[:index] if (id_ := record.payload.get("id"))}
    fresh = [item for item in expected[:-1] if item["id"] not in known]
    history = reconstruct(records[:index], HistoryMode.PAGINATED).history
    summary = payload["message"].partition("\n")[2]
    built = replacement_after_summary(history, opaque or summary, fresh)
    assert built[:-1] == expected[:-1]
    assert built[-1] == expected[-1] if opaque else parts(built[-1]) == [payload["message"]]


def test_a_legacy_rebuild_has_no_context_and_names_a_missing_summary() -> None:
    history = [*CONTEXT, user("q1"), message("assistant", "a1")]
    assert render_history(legacy_rebuild(history, "SUM")) == "U(q1) U(SUM)"
    assert render_history(legacy_rebuild(history, "")) == "U(q1) U((no summary available))"


HISTORY = reconstruct(
    parse_log("E U(u1) A(a1) U(u2) FC(c1) FO(c1) A(a2) U(u3) A(a3)", HistoryMode.LEGACY), HistoryMode.LEGACY
).history


@pytest.mark.parametrize(
    ("keep_last", "suffix"),
    [
        (0, ""),
        (1, " U(u3) A(a3)"),
        (2, " U(u2) FC(c1) FO(c1) A(a2) U(u3) A(a3)"),
        (9, " E U(u1) A(a1) U(u2) FC(c1) FO(c1) A(a2) U(u3) A(a3)"),
    ],
)
def test_a_callers_summary_stands_before_the_kept_suffix(keep_last: int, suffix: str) -> None:
    assert render_history(keep_last_replacement(HISTORY, "mine", keep_last)) == f"D(mine){suffix}"


def test_a_cut_never_parts_a_call_from_its_output() -> None:
    log = "U(u1) FC(c1) FC(c2) U(steered) FO(c2) A(a)"
    history = reconstruct(parse_log(log, HistoryMode.LEGACY), HistoryMode.LEGACY).history
    assert render_history(keep_last_replacement(history, "mine", 1)) == "D(mine) FC(c2) U(steered) FO(c2) A(a)"


@pytest.mark.parametrize("keep_last", [-1, True, "1", None, 1.5])
def test_a_kept_length_that_is_no_number_is_refused(keep_last: object) -> None:
    with pytest.raises(InvalidParams) as refused:
        keep_last_replacement(HISTORY, "mine", keep_last)
    assert refused.value.data["field"] == "keepLast"


def test_a_written_checkpoint_reads_back_as_the_state_it_was_made_from() -> None:
    first, second = "01a22ba7-deae-79f1-9f5f-68e06a583cc4", "01a22ba7-e1b4-7640-8ff6-c3c9508d5f30"
    window = next_window(Window(0, first, None, first), second)
    previous = PreviousSettings("m", None, False)
    new = compacted_record(
        message="text", replacement=[user("q1")], window=window, previous_settings=previous, last_started_turn_id="t1"
    )
    header, *_ = parse_log("", HistoryMode.LEGACY)
    result = reconstruct([header, Record("r", 1, new.type, new.payload)], HistoryMode.LEGACY)
    assert (result.history, result.window) == ((user("q1"),), Window(1, first, first, second))
    assert (result.previous_settings, result.last_started_turn_id) == (previous, "t1")


def test_side_data_of_another_length_is_refused_before_it_is_written() -> None:
    with pytest.raises(ValueError, match="one metadata entry per item"):
        compacted_record(
            message="",
            replacement=[],
            window=Window(1),
            previous_settings=None,
            last_started_turn_id=None,
            metadata=[{}],
        )


def test_estimates_count_utf8_bytes_of_all_texts_rounded_up() -> None:
    assert estimate_tokens(user("€€", "x")) == 2
    assert estimate_tokens({"type": "function_call_output", "call_id": "c", "output": "12345"}) == 2
