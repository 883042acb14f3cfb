"""The settings for the next turn come from the newest records, survival aside."""

from unspool_protocol.log import HistoryMode, Record
from unspool_server.history.settings import EffectiveSettings, effective_settings

from tests.history.logs import fixture_logs
from tests.history.rows import parse_log

SETTINGS = {"model": "s", "model_provider_id": "p", "cwd": "/s", "runtime_workspace_roots": ["/s"]}


def applied(**changes: object) -> Record:
    payload = {"type": "thread_settings_applied", "thread_settings": {**SETTINGS, **changes}}
    return Record("r", 0, "event_msg", payload)


def test_the_model_is_the_newest_recorded_one_also_when_its_turn_was_rolled_back() -> None:
    records = parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m0) RB(1)", HistoryMode.LEGACY)
    assert effective_settings(records).model == "m0"
    assert effective_settings([*records, applied()]).model == "s"
    later = parse_log("T(t1,u1,a1,m)", HistoryMode.LEGACY)
    assert effective_settings([later[0], applied(), *later[1:]]).model == "m"


def test_cwd_and_permissions_come_from_applied_settings_or_the_header_never_from_a_turn() -> None:
    records = parse_log("TS(t1) U(u1) TE(t1)", HistoryMode.LEGACY)
    context = Record("r", 9, "turn_context", {"model": "m", "cwd": "/t", "sandbox_policy": {"type": "read-only"}})
    plain = effective_settings([*records, context])
    assert (plain.cwd, plain.sandbox_policy, plain.workspace_roots, plain.approval_policy) == ("/w", None, None, None)
    full = effective_settings(
        [*records, applied(permission_profile={"type": "disabled"}, approval_policy="never"), context]
    )
    assert (full.cwd, full.permission_profile, full.workspace_roots) == ("/s", {"type": "disabled"}, ("/s",))
    assert (full.approval_policy, full.model_provider) == ("never", "p")


def test_a_recorded_log_tells_all_its_settings() -> None:
    log = next(log for log in fixture_logs() if log.name == "compact")
    found = effective_settings(log.records)
    assert found.token_info is not None and found.token_info["last_token_usage"]["total_tokens"] == 196
    assert (found.base_instructions, found.model, found.cwd, found.effort) == ("BASE", "mock-model", "/tmp/ws", None)


def test_an_empty_log_tells_nothing() -> None:
    assert effective_settings([]) == EffectiveSettings()
