"""Every scenario of `rows.md`, all columns that belong to the model's view."""

import pytest
from unspool_server.history.boundaries import is_real_user_message
from unspool_server.history.reconstruct import reconstruct
from unspool_server.history.state import Out, Reconstruction

from tests.history.rows import Row, our_rows, render_history

ROWS = our_rows()


def reference_token(result: Reconstruction) -> str | None:
    context = result.reference_context
    return None if context is None else f"TC({context.get('turn_id', '-')},{context['model']})"


def test_the_table_has_all_its_rows() -> None:
    assert [row.number for row in ROWS] == list(range(1, 84))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row.number}")
def test_a_scenario_yields_the_states_of_the_table(row: Row) -> None:
    result = reconstruct(row.records, row.mode)
    settings = result.previous_settings
    assert (
        render_history(result.history),
        settings.model if settings else None,
        reference_token(result),
        result.world_state,
        result.window.number,
    ) == (row.history, row.previous_model, row.reference, row.world, row.window)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row.number}")
def test_spans_tell_the_fate_of_every_record_in_order(row: Row) -> None:
    records = row.records
    spans = reconstruct(records, row.mode).spans
    assert [span.start for span in spans] == [0, *(span.end for span in spans[:-1])]
    assert spans[-1].end == len(records)
    assert all(span.by is None or span.by > span.start for span in spans)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row.number}")
def test_items_of_records_in_force_are_the_history_after_the_base(row: Row) -> None:
    records = row.records
    result = reconstruct(records, row.mode)
    in_force = {index for span in result.spans if span.out is None for index in range(span.start, span.end)}
    user_texts = [
        record.payload["content"][0]["text"]
        for index, record in enumerate(records)
        if index in in_force and record.type == "response_item" and is_real_user_message(record.payload)
    ]
    compacted = any(span.out is Out.COMPACTION for span in result.spans)
    shown = [item["content"][0]["text"] for item in result.history if is_real_user_message(item)]
    if not compacted and "CPL" not in row.log:
        assert user_texts == shown
    else:
        assert [text for text in user_texts if text not in shown] == []
