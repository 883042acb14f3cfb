"""Agents that the model starts: their threads, what they are told, and how their answers come home."""

import json
from typing import Any

import pytest
from unspool_server.sessions.session import Session

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House, LocalDaemon
from tests.interaction.wire import Client
from tests.state.agreement import assert_log_tells, without_spans
from tests.tools.peers import output_of, push_call, spaces

SPACE = "collaboration"
MODES = pytest.mark.parametrize("mode", ["paginated", "legacy"])
Steps = list[dict[str, Any]]


class Family(Mock):
    """A model service that answers agents apart from those who started them: by the task that an agent was given."""

    def __init__(self) -> None:
        super().__init__()
        self.for_agents: dict[str, list[Steps]] = {}
        self.of_agents: list[dict[str, Any]] = []

    def take(self, path: str, req: dict[str, Any]) -> tuple[Steps, int]:
        told = [item for item in req["input"] if item.get("type") == "agent_message" and item["author"] == "/root"]
        if not told:
            return super().take(path, req)
        with self.lock:
            self.n += 1
            self.of_agents.append(req)
            task = str(told[-1]["content"][0]["text"]).rpartition("\n")[2]
            waiting = self.for_agents.get(task)
            return (waiting.pop(0) if waiting else [{"say": f"did {task}"}]), self.n


@pytest.fixture
def family(house: House) -> Any:
    """The model service, and a home whose threads may start agents."""
    service = Family()
    house.service(service)
    house.tables["agents"] = {"enabled": True, "max_threads": 2}
    yield service
    service.srv.shutdown()
    service.srv.server_close()


async def opened(house: House, daemon: LocalDaemon, **params: Any) -> tuple[Client, str]:
    """A client and a thread of its own."""
    client = await daemon.connect()
    return client, await client.start(cwd=str(house.work), **params)


def ask(model: Mock, tool: str, call_id: str, **arguments: Any) -> None:
    """Let the model use one of the tools next."""
    push_call(model, tool, call_id, SPACE, **arguments)


def heard(request: Any) -> list[str]:
    """The answers of agents that a request shows, without their heads."""
    texts = [item["content"][0]["text"] for item in request["input"] if item["type"] == "agent_message"]
    return [text.partition("Payload:\n")[2] for text in texts if "FINAL_ANSWER" in text]


async def assert_memory_is_the_log(session: Session) -> None:
    """A loaded thread's memory is what a restart would make of its log."""
    expected = await assert_log_tells(session.store, session.log.info)
    assert without_spans(session.history.state) == expected


async def agent_of(client: Client, parent: str) -> str:
    """The thread of the agent that was started last."""
    started = await client.until(
        lambda m: m.get("method") == "thread/started" and m["params"]["thread"]["parentThreadId"] == parent
    )
    return str(started["params"]["thread"]["id"])


async def answered(client: Client, agent: str) -> None:
    """Wait until an agent's turn has ended and its answer is where it belongs."""
    await client.event("thread/status/changed", threadId=agent, status={"type": "idle"})


async def spawned(house: House, daemon: LocalDaemon, family: Family, **params: Any) -> tuple[Client, str, str]:
    """A client, a thread, and an agent `kid` of it that has answered to `dig`."""
    client, thread = await opened(house, daemon, **params)
    ask(family, "spawn_agent", "c1", task_name="kid", message="dig")
    ask(family, "wait_agent", "c2", timeout_ms=5000)
    family.replies.pop(1)
    await client.turn(thread, "go")
    return client, thread, await agent_of(client, thread)


async def test_the_tools_are_offered_where_the_configuration_says_so(house: House, family: Family) -> None:
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        await client.turn(thread, "hi")
        names = ["followup_task", "interrupt_agent", "list_agents", "send_message", "spawn_agent", "wait_agent"]
        assert spaces(family) == {SPACE: names}
        plain = await client.start(cwd=str(house.work), config={"agents.enabled": False})
        await client.turn(plain, "hi")
        assert spaces(family) == {}


@MODES
async def test_an_agent_works_in_a_thread_of_its_own_and_its_answer_comes_into_the_turn_that_waits(
    house: House, family: Family, mode: str
) -> None:
    async with house.daemon() as daemon:
        client, thread, agent = await spawned(house, daemon, family, historyMode=mode)
        assert output_of(family, "c1") == '{"task_name":"/root/kid"}'
        assert output_of(family, "c2") == '{"message":"Wait completed.","timed_out":false}'
        assert heard(family.last()) == ["did dig"]
        live = (await client.read(thread))["turns"]
        kinds = [(item["type"], item.get("kind")) for item in live[0]["items"][1:-1]]
        assert kinds == [
            ("subAgentActivity", "started"),
            ("collabAgentToolCall", None),
            ("subAgentActivity", "completed"),
        ]
        assert {item["agentThreadId"] for item in live[0]["items"] if "agentThreadId" in item} == {agent}
        await assert_memory_is_the_log(daemon.session(thread))
        await assert_memory_is_the_log(daemon.session(agent))
    (request,) = family.of_agents
    assert SPACE not in [tool["name"] for tool in request["tools"]], "it is as deep as agents may be started"
    header = house.records(agent)[0]["payload"]
    assert (header["parent_thread_id"], header["session_id"], header["thread_source"]) == (thread, thread, "subagent")
    assert header["source"]["subagent"]["thread_spawn"]["agent_path"] == "/root/kid"
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert (await client.read(thread))["turns"] == live
        await client.call("thread/resume", {"threadId": thread})
        await client.turn(thread, "again")
        assert heard(family.last()) == ["did dig"]


async def test_an_answer_that_nobody_waits_for_is_recorded_in_the_idle_thread(house: House, family: Family) -> None:
    family.for_agents["dig"] = [[{"wait": 0.3}, {"say": "found it"}]]
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        ask(family, "spawn_agent", "c1", task_name="kid", message="dig")
        await client.turn(thread, "go")
        await answered(client, await agent_of(client, thread))
        await daemon.services.sessions.agents.settled()
        assert heard({"input": daemon.session(thread).history.state.history}) == ["found it"]
        assert daemon.session(thread).turn is None
        await client.turn(thread, "what is new?")
        assert heard(family.last()) == ["found it"]
        await assert_memory_is_the_log(daemon.session(thread))


async def test_an_agent_may_know_what_was_said_before(house: House, family: Family) -> None:
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        await client.turn(thread, "the sky is green")
        ask(family, "spawn_agent", "c1", task_name="kid", message="dig", fork_turns="all")
        await client.turn(thread, "go")
        agent = await agent_of(client, thread)
        await answered(client, agent)
        shown = (await client.read(agent))["forkedFromId"]
    (request,) = family.of_agents
    said = json.dumps(request["input"])
    assert "the sky is green" in said
    assert '"go"' not in said
    assert shown == thread


async def test_an_agent_gets_further_tasks_and_messages(house: House, family: Family) -> None:
    async with house.daemon() as daemon:
        client, thread, agent = await spawned(house, daemon, family)
        ask(family, "send_message", "c3", target="kid", message="by the way")
        await client.turn(thread, "tell it")
        assert len(family.of_agents) == 1
        ask(family, "followup_task", "c4", target="/root/kid", message="more")
        ask(family, "wait_agent", "c5", timeout_ms=5000)
        family.replies.pop(1)
        await client.turn(thread, "go on")
        assert heard(family.last()) == ["did dig", "did more"]
        texts = [item["content"][0]["text"] for item in family.of_agents[1]["input"] if item["type"] == "agent_message"]
        assert [text.partition("\n")[0].partition(": ")[2] for text in texts] == ["NEW_TASK", "MESSAGE", "NEW_TASK"]
        assert len((await client.read(agent))["turns"]) == 2


async def test_an_agent_can_be_interrupted_and_listed(house: House, family: Family) -> None:
    family.for_agents["dig"] = [[{"hang": True}]]
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        ask(family, "spawn_agent", "c1", task_name="kid", message="dig")
        await client.turn(thread, "go")
        agent = await agent_of(client, thread)
        ask(family, "wait_agent", "c2", timeout_ms=50)
        await client.turn(thread, "wait")
        assert output_of(family, "c2") == '{"message":"Wait timed out.","timed_out":true}'
        ask(family, "interrupt_agent", "c3", target="kid")
        ask(family, "list_agents", "c4")
        family.replies.pop(1)
        await client.turn(thread, "stop")
        assert output_of(family, "c3") == '{"previous_status":"running"}'
        listed = json.loads(output_of(family, "c4"))["agents"]
        assert {one["agent_name"]: one["agent_status"] for one in listed} == {
            "/root": "running",
            "/root/kid": "interrupted",
        }
        assert [turn["status"] for turn in (await client.read(agent))["turns"]] == ["interrupted"]
        ask(family, "wait_agent", "c5")
        await client.turn(thread, "wait again")
        assert output_of(family, "c5") == '{"message":"No agent is running.","timed_out":false}'
        assert heard(family.last()) == []


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("spawn_agent", {"task_name": "Kid!", "message": "x"}, "task_name must use only lowercase"),
        ("spawn_agent", {"task_name": "kid", "message": "x"}, "agent path `/root/kid` already exists"),
        ("spawn_agent", {"task_name": "other"}, "`message` must be a text"),
        ("followup_task", {"target": "nobody", "message": "x"}, "live agent path `/root/nobody` not found"),
        ("send_message", {"target": "/root", "message": "x"}, "an agent cannot talk to itself"),
    ],
)
async def test_what_cannot_be_done_is_said_to_the_model(
    house: House, family: Family, tool: str, arguments: dict[str, str], told: str
) -> None:
    async with house.daemon() as daemon:
        client, thread, _ = await spawned(house, daemon, family)
        ask(family, tool, "c9", **arguments)
        await client.turn(thread, "try")
        assert str(output_of(family, "c9")).startswith(told)


async def test_no_more_agents_work_at_once_than_allowed(house: House, family: Family) -> None:
    family.for_agents["dig"] = [[{"hang": True}], [{"hang": True}]]
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        for number, name in enumerate(("one", "two", "three")):
            ask(family, "spawn_agent", f"c{number}", task_name=name, message="dig")
            await client.turn(thread, "go")
        assert output_of(family, "c2") == "agent thread limit reached (max 2)"


async def test_the_limit_holds_for_agents_that_one_answer_starts(house: House, family: Family) -> None:
    family.for_agents["dig"] = [[{"hang": True}]] * 5
    names = ["one", "two", "three", "four", "five"]
    calls = [{"task_name": name, "message": "dig"} for name in names]
    raw = {"type": "function_call", "namespace": SPACE, "name": "spawn_agent"}
    family.replies.append(
        [
            {"raw": {**raw, "id": f"f{number}", "call_id": f"c{number}", "arguments": json.dumps(given)}}
            for number, given in enumerate(calls)
        ]
    )
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        await client.turn(thread, "go")
        told = [str(output_of(family, f"c{number}")) for number in range(len(names))]
    assert told.count("agent thread limit reached (max 2)") == len(names) - 2


async def test_the_name_of_an_agent_that_was_deleted_is_free_again(house: House, family: Family) -> None:
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        for call_id in ("c1", "c2"):
            ask(family, "spawn_agent", call_id, task_name="one", message="dig")
            await client.turn(thread, "go")
        assert output_of(family, "c2") == "agent path `/root/one` already exists"
        await client.call("thread/delete", {"threadId": await agent_of(client, thread)})
        ask(family, "spawn_agent", "c3", task_name="one", message="dig")
        await client.turn(thread, "go")
        assert output_of(family, "c3") == '{"task_name":"/root/one"}'


async def test_an_interrupt_of_the_parent_leaves_its_agents_at_work(house: House, family: Family) -> None:
    family.for_agents["dig"] = [[{"wait": 0.3}, {"say": "found it"}]]
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        ask(family, "spawn_agent", "c1", task_name="kid", message="dig")
        family.replies[-1] = [{"hang": True}]
        turn = await client.begin(thread, "go")
        agent = await agent_of(client, thread)
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        family.replies.clear()
        await answered(client, agent)
        await daemon.services.sessions.agents.settled()
        await client.turn(thread, "and?")
        assert heard(family.last()) == ["found it"]


async def test_an_answer_that_the_end_of_the_daemon_cut_off_comes_home_once_after_a_restart(
    house: House, family: Family
) -> None:
    async with house.daemon() as daemon:
        client, thread, agent = await spawned(house, daemon, family)
        # The agent answers a client's own question while its parent cannot be told of it.
        daemon.services.sessions.agents.turn_ended = lambda *_: None  # type: ignore[method-assign]
        await client.call("thread/resume", {"threadId": agent})
        await client.turn(agent, "and you?")
    family.requests.clear()
    for _ in range(2):
        async with house.daemon() as daemon:
            client = await daemon.connect()
            await client.call("thread/resume", {"threadId": thread})
            await client.turn(thread, "what is new?")
            answers = heard(family.last())
            assert len(answers) == 2 and answers[0] == "did dig"


async def test_an_agent_that_was_at_work_when_the_daemon_was_killed_counts_as_interrupted(
    house: House, family: Family
) -> None:
    family.for_agents["dig"] = [[{"hang": True}]]
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        ask(family, "spawn_agent", "c1", task_name="kid", message="dig")
        await client.turn(thread, "go")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        ask(family, "list_agents", "c2")
        await client.turn(thread, "who is there?")
        assert '"/root/kid","agent_status":"interrupted"' in output_of(family, "c2")
        ask(family, "followup_task", "c3", target="kid", message="again")
        ask(family, "wait_agent", "c4", timeout_ms=5000)
        family.replies.pop(1)
        await client.turn(thread, "go on")
        assert heard(family.last()) == ["did again"]


async def test_an_answer_for_a_thread_that_is_gone_disturbs_nobody(house: House, family: Family) -> None:
    family.for_agents["dig"] = [[{"wait": 0.3}, {"say": "found it"}]]
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        ask(family, "spawn_agent", "c1", task_name="kid", message="dig")
        await client.turn(thread, "go")
        agent = await agent_of(client, thread)
        await client.call("thread/delete", {"threadId": thread})
        await answered(client, agent)
        await daemon.services.sessions.agents.settled()
        assert [turn["status"] for turn in (await client.read(agent))["turns"]] == ["completed"]


async def test_lists_show_agents_where_they_are_asked_for(house: House, family: Family) -> None:
    async with house.daemon() as daemon:
        client, thread, agent = await spawned(house, daemon, family)

        async def listed(**params: Any) -> list[str]:
            return [one["id"] for one in (await client.call("thread/list", params))["data"]]

        assert await listed() == [thread]
        assert await listed(sourceKinds=["subAgent"]) == [agent]
        assert await listed(sourceKinds=["subAgentThreadSpawn", "vscode"]) == [agent, thread]
        assert await listed(sourceKinds=["subAgentReview"]) == []
        assert await listed(parentThreadId=thread) == [agent]
        assert await listed(ancestorThreadId=thread) == [agent]
        assert await listed(ancestorThreadId=agent) == []
        (shown,) = (await client.call("thread/list", {"parentThreadId": thread}))["data"]
        assert shown["source"]["subAgent"]["thread_spawn"]["parent_thread_id"] == thread
        assert (shown["parentThreadId"], shown["agentNickname"]) == (thread, "kid")
        both = {"parentThreadId": thread, "ancestorThreadId": thread}
        assert "mutually exclusive" in str(await client.refused("thread/list", both))
