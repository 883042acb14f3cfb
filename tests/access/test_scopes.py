"""What a caller may do: every method has a scope, and nobody gets beyond their own."""

from typing import Any

import pytest
from unspool_protocol.methods import METHODS
from unspool_server.access.principal import OWNER, Principal, Scope
from unspool_server.access.scopes import CHANGING_FIELDS, METHOD_SCOPES, OWNERS_ONLY, scope_of

from tests.access.callers import caller, principal
from tests.interaction.house import House

READER, WRITER, NOBODY = principal("r", scope=Scope.READ), principal("w", scope=Scope.WRITE), Principal("n")


def test_every_method_has_a_scope_in_access_scopes() -> None:
    assert METHOD_SCOPES.keys() == METHODS.keys() - {"initialize"}


def test_a_method_that_was_forgotten_takes_the_highest_scope() -> None:
    assert scope_of("thread/new", {}) is Scope.ADMIN


@pytest.mark.parametrize(
    ("params", "scope"),
    [
        ({"threadId": "x", "excludeTurns": True, "replay": {}}, Scope.READ),
        ({"threadId": "x", "model": None}, Scope.READ),
        *(({"threadId": "x", name: "y"}, Scope.WRITE) for name in ("model", "cwd", "sandbox", "config")),
        (None, Scope.READ),
        ([], Scope.READ),
    ],
)
def test_following_a_thread_is_reading_and_changing_its_settings_by_the_way_is_not(params: Any, scope: Scope) -> None:
    assert {"approvalPolicy", "modelProvider", "developerInstructions"} <= CHANGING_FIELDS["thread/resume"]
    assert scope_of("thread/resume", params) is scope


async def test_each_method_is_refused_to_those_below_its_scope_before_anything_is_looked_at(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        for who in (NOBODY, READER, WRITER):
            client = await caller(daemon, who)
            for method, scope in METHOD_SCOPES.items():
                answer = await client.answer(await client.ask(method, {}))
                data = answer.get("error", {}).get("data", {})
                if who.may(scope):
                    assert data.get("reason") != "forbidden", method
                else:
                    assert (answer["error"]["code"], data) == (-32600, {"reason": "forbidden", "scope": scope}), method
                    assert answer["error"]["message"] == f"{method} requires the scope `{scope}`"
            await client.close()
    assert not house.logs()


async def test_a_reader_follows_a_thread_and_cannot_change_it_a_writer_cannot_delete_it(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        clients = [await caller(daemon, who) for who in (OWNER, READER, WRITER)]
        owner, reader, writer = clients
        thread = await owner.start(cwd=str(house.work))
        await owner.turn(thread, "one")
        await reader.call("thread/resume", {"threadId": thread})
        turn = await writer.begin(thread, "two")
        assert (await reader.ended(turn))["status"] == "completed"
        for method, params in (
            ("turn/start", {"input": []}),
            ("thread/rollback", {"numTurns": 1}),
            ("thread/fork", {}),
            ("thread/resume", {"sandbox": "danger-full-access"}),
        ):
            assert (await reader.refused(method, {"threadId": thread, **params})).data["scope"] == "write"
        assert (await writer.refused("thread/delete", {"threadId": thread})).data["scope"] == "admin"
        await owner.call("thread/delete", {"threadId": thread})
        await owner.event("thread/deleted", threadId=thread)
        for client in clients:
            await client.close()


async def test_what_concerns_the_whole_server_is_refused_to_every_token_of_a_tenant(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        owner, tenant = await caller(daemon, OWNER), await caller(daemon, principal("t", "a"))
        await owner.turn(await owner.start(cwd=str(house.work)), "hidden")
        for method in sorted(OWNERS_ONLY):
            refused = await tenant.refused(method, {})
            assert (refused.reason, refused.message) == (
                "forbidden",
                f"{method} is for the machine's owner, not for a tenant",
            )
        assert not daemon.services.env.lifecycle.stopping.is_set()
        assert (await owner.call("server/diagnostics", {}))["writers"]
        await owner.close()
        await tenant.close()
