"""Chat completions over a real socket: what servers of every habit send becomes the same items."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from unspool_server.errors import ContextLengthExceeded, ProviderRejected, ProviderUnavailable, StreamCut
from unspool_server.model.contract import (
    ItemDone,
    ItemStarted,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    ResponseDone,
    TextDelta,
    Usage,
)
from unspool_server.model.provider import HttpProvider

from tests.model.chat_service import (
    CUT,
    ChatService,
    Refusal,
    call_piece,
    calls,
    chunk,
    collect,
    provider_for,
    serving,
    user,
)

Chat = tuple[HttpProvider, ChatService]
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}


@pytest.fixture
async def chat() -> AsyncIterator[Chat]:
    async with serving() as service:
        provider = provider_for(service)
        yield provider, service
        await provider.close()


async def test_text_and_tool_calls_become_items(chat: Chat) -> None:
    provider, service = chat
    service.answers.append(
        [
            chunk(role="assistant", content=""),
            chunk(content="Hel"),
            chunk(content="lo"),
            chunk(tool_calls=[call_piece(0, "c1", name="run", arguments='{"a"')]),
            chunk(tool_calls=[call_piece(1, "c2", name="stop", arguments="{}")]),
            chunk("tool_calls", tool_calls=[call_piece(0, arguments=":1}")]),
            {"id": "chat-1", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}},
            "[DONE]",
        ]
    )

    events = await collect(provider)

    started = events[0]
    assert isinstance(started, ItemStarted)
    message = started.item
    stem = str(message["id"]).removeprefix("msg_")
    assert events == [
        ItemStarted({"type": "message", "id": f"msg_{stem}", "role": "assistant", "content": []}),
        TextDelta(f"msg_{stem}", "Hel"),
        TextDelta(f"msg_{stem}", "lo"),
        ItemDone({**message, "content": [{"type": "output_text", "text": "Hello"}]}),
        ItemDone(
            {"type": "function_call", "id": f"fc_{stem}_0", "call_id": "c1", "name": "run", "arguments": '{"a":1}'}
        ),
        ItemDone({"type": "function_call", "id": f"fc_{stem}_1", "call_id": "c2", "name": "stop", "arguments": "{}"}),
        ResponseDone("chat-1", Usage(input_tokens=7, output_tokens=3, total_tokens=10)),
    ]
    assert service.heads[0].startswith("POST /v1/chat/completions ")


WHOLE = '{"a":1}'
TWICE = [("f", WHOLE), ("f", '{"a":2}')]
HABITS: dict[str, tuple[list[list[dict[str, Any]]], list[tuple[str, str]]]] = {
    "whole calls in one chunk": (
        [
            [
                call_piece(0, "c1", name="f", arguments=WHOLE),
                call_piece(1, "c2", name="f", arguments='{"a":2}'),
            ]
        ],
        TWICE,
    ),
    "every call under index 0, told apart by ids": (
        [[call_piece(0, "c1", name="f", arguments=WHOLE)], [call_piece(0, "c2", name="f", arguments='{"a":2}')]],
        TWICE,
    ),
    "no index and no id": (
        [[call_piece(None, name="f", arguments=WHOLE)], [call_piece(None, name="f", arguments='{"a":2}')]],
        TWICE,
    ),
    "no index, an id with every piece": (
        [
            [call_piece(None, "c1", name="f", arguments='{"a"')],
            [call_piece(None, "c2", name="f", arguments='{"a"')],
            [call_piece(None, "c1", arguments=":1}"), call_piece(None, "c2", arguments=":2}")],
        ],
        TWICE,
    ),
    "no index, pieces of the last call": (
        [[call_piece(None, "c1", name="f")], [call_piece(None, arguments='{"a"')], [call_piece(None, arguments=":1}")]],
        TWICE[:1],
    ),
    "the name with every piece": (
        [
            [call_piece(0, "c1", name="f", arguments='{"a"')],
            [call_piece(0, "c1", name="f", arguments=":1}")],
            [call_piece(0, "c1", name="f", arguments="")],
        ],
        TWICE[:1],
    ),
    "a name in pieces": (
        [[call_piece(0, "c1", name="lo")], [call_piece(0, name="ok", arguments="{}")]],
        [("look", "{}")],
    ),
    "arguments as an object": ([[call_piece(0, "c1", name="f", arguments={"a": 1})]], [("f", '{"a": 1}')]),
    "no arguments": ([[call_piece(0, "c1", name="f")]], [("f", "{}")]),
    "null arguments": ([[call_piece(0, "c1", name="f", arguments=None)]], [("f", "{}")]),
}


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
async def test_tool_calls_arrive_whole_in_whatever_way_a_server_sends_them(chat: Chat, habit: str, finish: str) -> None:
    provider, service = chat
    chunks, expected = HABITS[habit]
    service.answers.append([*(chunk(tool_calls=pieces) for pieces in chunks), chunk(finish), "[DONE]"])

    events = await collect(provider, tools=[FUNCTION])

    assert calls(events) == expected
    ids = [event.item["call_id"] for event in events if isinstance(event, ItemDone)]
    assert all(ids) and len(set(ids)) == len(ids)


async def test_ids_differ_between_answers_although_the_server_repeats_its_own(chat: Chat) -> None:
    provider, service = chat
    service.answers += [[chunk("stop", content="x"), "[DONE]"]] * 2

    first, second = [await collect(provider) for _ in range(2)]

    assert {event.item["id"] for event in first if isinstance(event, ItemDone)}.isdisjoint(
        event.item["id"] for event in second if isinstance(event, ItemDone)
    )


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_becomes_an_item_before_the_message_and_is_sent_again(chat: Chat, field: str) -> None:
    provider, service = chat
    service.answers.append([chunk(**{field: "let "}), chunk(**{field: "me"}), chunk("stop", content="yes"), "[DONE]"])

    events = await collect(provider)

    items = [event.item for event in events if isinstance(event, ItemDone)]
    assert [item["type"] for item in items] == ["reasoning", "message"]
    assert items[0]["content"] == [{"type": "reasoning_text", "text": "let me"}]
    deltas = [event for event in events if isinstance(event, ReasoningDelta)]
    assert [(delta.item_id, delta.delta, delta.kind) for delta in deltas] == [
        (items[0]["id"], "let ", "content"),
        (items[0]["id"], "me", "content"),
    ]
    service.answers.append([chunk("stop", content="x"), "[DONE]"])
    await collect(provider, user("a"), *items, user("b"))
    assert service.bodies[-1]["messages"][1] == {"role": "assistant", "reasoning_content": "let me", "content": "yes"}


async def test_the_request_carries_tools_effort_and_schema(chat: Chat) -> None:
    provider, service = chat
    service.answers.append([chunk("stop", content="x"), "[DONE]"])
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}

    await collect(
        provider, tools=[{"type": "function", **function}, {"type": "web_search"}], effort="low", output_schema={"a": 1}
    )

    assert service.bodies == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "tools": [{"type": "function", "function": function}],
            "parallel_tool_calls": True,
            "reasoning_effort": "low",
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "output", "strict": True, "schema": {"a": 1}},
            },
        }
    ]


async def test_custom_tools_and_namespaces_go_as_functions_and_come_back_as_what_they_are(chat: Chat) -> None:
    provider, service = chat
    tools = [
        {"type": "custom", "name": "patch", "description": "d"},
        {"type": "namespace", "name": "files", "tools": [FUNCTION, {"type": "unheard_of"}]},
    ]
    pieces = [
        call_piece(0, "c1", name="patch", arguments='{"input":"*** Begin"}'),
        call_piece(1, "c2", name="files__f", arguments="{}"),
        call_piece(2, "c3", name="patch", arguments="*** bare"),
    ]
    service.answers.append([chunk("tool_calls", tool_calls=pieces), "[DONE]"])

    events = await collect(provider, tools=tools)

    assert [one["function"]["name"] for one in service.bodies[0]["tools"]] == ["patch", "files__f"]
    items = [{**event.item, "id": ""} for event in events if isinstance(event, ItemDone)]
    assert items == [
        {"type": "custom_tool_call", "name": "patch", "id": "", "call_id": "c1", "input": "*** Begin"},
        {
            "type": "function_call",
            "name": "f",
            "namespace": "files",
            "id": "",
            "call_id": "c2",
            "arguments": "{}",
        },
        {"type": "custom_tool_call", "name": "patch", "id": "", "call_id": "c3", "input": "*** bare"},
    ]


async def test_usage_tells_cached_and_reasoning_tokens_and_is_estimated_where_a_server_tells_none(chat: Chat) -> None:
    provider, service = chat
    told = {
        "prompt_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens": 30,
        "completion_tokens_details": {"reasoning_tokens": 20},
    }
    service.answers += [
        [chunk("stop", content="x"), {"choices": [], "usage": told}, "[DONE]"],
        [chunk("stop", content="x"), {"choices": [], "usage": {"prompt_tokens": 5, "prompt_tokens_details": None}}],
        [chunk("stop", content="12345"), "[DONE]"],
    ]

    ends = [(await collect(provider))[-1] for _ in range(3)]

    assert [end.usage for end in ends if isinstance(end, ResponseDone)] == [
        Usage(100, 60, 30, 20, 130),
        Usage(input_tokens=5, total_tokens=5),
        Usage(input_tokens=1, output_tokens=2, total_tokens=3),
    ]


@pytest.mark.parametrize("ending", [[], [CUT]], ids=["ended", "broken"])
async def test_a_stream_without_a_finish_reason_is_cut(chat: Chat, ending: list[object]) -> None:
    provider, service = chat
    service.answers.append([chunk(content="Hel"), *ending])

    with pytest.raises(StreamCut):
        await collect(provider)


@pytest.mark.parametrize("ending", [[], [CUT]], ids=["ended", "broken"])
async def test_an_answer_with_its_finish_reason_is_whole_whatever_the_connection_does_then(
    chat: Chat, ending: list[object]
) -> None:
    provider, service = chat
    service.answers.append([chunk("stop", content="Hello"), *ending])

    events = await collect(provider)

    assert isinstance(events[-1], ResponseDone)


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
async def test_an_answer_cut_short_keeps_its_text_runs_no_call_and_says_why(
    chat: Chat, finish: str, reason: str
) -> None:
    provider, service = chat
    pieces = [call_piece(0, "c1", name="f", arguments='{"a"')]
    service.answers.append([chunk(content="so far"), chunk(finish, tool_calls=pieces), "[DONE]"])
    events: list[ModelEvent] = []

    with pytest.raises(ProviderRejected, match=f"reason: {reason}"):
        async for event in provider.stream(ModelRequest(model="m", input=[user("hi")], cache_key="t")):
            events.append(event)

    assert [event.item["type"] for event in events if isinstance(event, ItemDone)] == ["message"]


async def test_errors_raise_like_those_of_the_responses_api(chat: Chat) -> None:
    provider, service = chat
    service.answers += [
        Refusal(400, {"error": {"code": "context_length_exceeded", "message": "too long"}}),
        Refusal(503, {}),
        [{"error": {"code": "server_is_overloaded", "message": "busy"}}],
        [{"error": "it broke"}],
    ]

    with pytest.raises(ContextLengthExceeded):
        await collect(provider)
    with pytest.raises(ProviderUnavailable):
        await collect(provider)
    with pytest.raises(ProviderUnavailable, match="at capacity"):
        await collect(provider)
    with pytest.raises(StreamCut):
        await collect(provider)


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(
            400, {"message": "This model's maximum context length is 4096 tokens. You requested 9000.", "code": 400}
        ),
        Refusal(
            400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "the request exceeds it"}}
        ),
        Refusal(400, {"error": {"message": "prompt is too long: 9000 tokens"}}),
        Refusal(500, {"error": {"message": "the request exceeds the available context size"}}),
    ],
    ids=["vllm", "llama.cpp", "proxy", "old llama.cpp"],
)
async def test_servers_without_a_code_for_it_are_understood_when_a_request_is_too_long(
    chat: Chat, refusal: Refusal
) -> None:
    provider, service = chat
    service.answers.append(refusal)

    with pytest.raises(ContextLengthExceeded):
        await collect(provider)


@pytest.mark.parametrize("words", ["Unrecognized request argument supplied: stream_options", "extra: stream_options"])
async def test_what_a_server_refuses_and_nobody_needs_is_left_out_from_then_on(chat: Chat, words: str) -> None:
    provider, service = chat
    service.answers.append(Refusal(400, {"error": {"message": words}}))
    service.answers += [[chunk("stop", content="x"), "[DONE]"]] * 2

    assert isinstance((await collect(provider))[-1], ResponseDone)
    await collect(provider)

    assert ["stream_options" in body for body in service.bodies] == [True, False, False]


async def test_a_refusal_of_something_needed_is_shown_and_not_repeated(chat: Chat) -> None:
    provider, service = chat
    service.answers += [Refusal(400, {"error": {"message": "tools are not supported; stream_options neither"}})] * 2

    with pytest.raises(ProviderRejected, match="tools are not supported"):
        await collect(provider)

    assert len(service.bodies) == 2


@pytest.mark.parametrize(
    ("words", "roles"),
    [
        ("System message must be at the beginning.", ["system", "user", "user", "assistant", "user", "user"]),
        ("System role not supported", ["user", "user", "user", "assistant", "user", "user"]),
        ("Conversation roles must alternate user/assistant/user/...", ["system", "user", "assistant", "user"]),
    ],
)
async def test_templates_that_are_strict_about_roles_get_what_they_want(
    chat: Chat, words: str, roles: list[str]
) -> None:
    provider, service = chat
    service.answers.append(Refusal(400, {"message": words}))
    service.answers.append([chunk("stop", content="x"), "[DONE]"])
    developer = {"role": "developer", "content": "base"}
    answer = {"role": "assistant", "content": [{"type": "output_text", "text": "A"}]}

    await collect(provider, developer, developer, user("context"), user("hi"), answer, developer, user("go"))

    assert [one["role"] for one in service.bodies[1]["messages"]] == roles
