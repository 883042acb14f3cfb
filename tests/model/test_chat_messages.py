"""Items as chat messages: the order that chat wants, and no request that a strict server would refuse."""

from typing import Any

from unspool_server.model.chat_messages import chat_messages, chat_tools, function_name

IMAGE = "data:image/png;base64,AA=="


def call(name: str, call_id: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asked(call_id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, text: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def told(text: str, call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def test_items_become_messages_and_what_chat_cannot_say_is_left_out() -> None:
    items: list[dict[str, Any]] = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "base"}]},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "more"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "E"},
        said("let me"),
        asked("c1"),
        {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "text"},
        output("c1", "one"),
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        {**asked("c3"), "namespace": "files"},
        {"type": "compaction", "encrypted_content": "E"},
        output("c3", "three"),
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": IMAGE, "detail": "low"}]},
        {"type": "message", "role": "developer", "content": "late"},
    ]

    assert chat_messages(items) == [
        {"role": "system", "content": "base\n\nmore"},
        {"role": "user", "content": "ab"},
        {
            "role": "assistant",
            "content": "let me",
            "tool_calls": [call("f", "c1", "{}"), call("g", "c2", '{"input": "text"}')],
        },
        told("one", "c1"),
        told("two", "c2"),
        {"role": "assistant", "content": None, "tool_calls": [call("files__f", "c3", "{}")]},
        told("three", "c3"),
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}}]},
        {"role": "system", "content": "late"},
    ]


def test_outputs_follow_their_calls_at_once_whatever_stands_between() -> None:
    items = [asked("c1"), asked("c2"), said("meanwhile"), {"role": "user", "content": "hm"}, output("c2", "two")]

    assert chat_messages(items) == [
        {"role": "assistant", "content": "meanwhile", "tool_calls": [call("f", "c1", "{}"), call("f", "c2", "{}")]},
        told("aborted", "c1"),
        told("two", "c2"),
        {"role": "user", "content": "hm"},
    ]


def test_a_call_id_that_a_server_uses_again_gets_the_output_of_its_own_round() -> None:
    items = [asked("c"), output("c", "one"), asked("c"), output("c", "two")]

    assert [one["content"] for one in chat_messages(items) if one["role"] == "tool"] == ["one", "two"]


def test_arguments_that_are_no_object_do_not_spoil_every_later_request() -> None:
    [message, _] = chat_messages([asked("c", arguments='{"a"'), output("c", "bad arguments")])

    assert message["tool_calls"] == [call("f", "c", '{"invalid": "{\\"a\\""}')]


def test_images_of_an_output_are_shown_behind_it_and_outputs_of_no_call_are_told_by_the_user() -> None:
    picture = {"type": "input_image", "image_url": IMAGE}
    items = [
        asked("c"),
        output("c", [{"type": "input_text", "text": "see"}, picture]),
        {"type": "function_call_output", "name": "editor", "output": "line 3"},
    ]

    assert chat_messages(items)[1:] == [
        told("see", "c"),
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": IMAGE}}]},
        {"role": "user", "content": "editor: line 3"},
    ]


def test_a_request_begins_with_the_messages_of_the_one_before_when_an_answer_was_broken_off() -> None:
    kept = [{"role": "user", "content": "go"}, said("finished")]
    thoughts = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}

    before, after = (
        chat_messages(kept),
        chat_messages([*kept, thoughts, said("again"), {"role": "user", "content": "x"}]),
    )

    assert after[: len(before)] == before
    assert after[len(before)] == {"role": "assistant", "content": "again", "reasoning_content": "hm"}


def test_names_that_are_too_long_for_chat_are_cut_and_still_differ() -> None:
    tools = [
        {"type": "namespace", "name": "n" * 40, "tools": [{"type": "function", "name": "t" * 40 + end}]} for end in "ab"
    ]

    declared, calls = chat_tools(tools)

    names = [one["function"]["name"] for one in declared]
    assert len(set(names)) == 2 and {len(name) for name in names} == {64}
    assert [calls[name]["name"] for name in names] == ["t" * 40 + "a", "t" * 40 + "b"]
    assert function_name("n" * 40, "t" * 40 + "a") == names[0]
