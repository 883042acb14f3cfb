"""Read the scenario table `rows.md`: a short notation for logs and for what must come out of them.

`TS(t)` task_started, `TE(t)` task_complete, `TA(t)` turn_aborted (`-`: no id), `UE(x)` user_message event, `UI(x)`
item_completed UserMessage, `U(x)` user item, `A(x)` assistant item, `D(x)` developer item, `SYS(x)` system item, `E`
environment context, `AB` turn-aborted marker, `FC/FO(c)` function call and output, `CC(c)` custom tool call, `R`
reasoning, `GS` ghost snapshot, `TC(t,m)` turn_context, `WS`/`WSp` world state full and patch, `CP[..]` compacted with
replacement (`w1`: window number 1, `r`: with resume metadata), `CPL(x)` legacy compacted, `RB(n)` rollback marker,
`IA+/IA-(x)` inter-agent record with and without trigger, `BOGUS` unknown type, `T(t,u,a,m)` = `TS(t) UE(u) TC(t,m) U(u)
A(a) TE(t)`, `Tp` the same with `UI` instead of `UE`. A `session_meta` precedes every row.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unspool_protocol.log import HistoryMode, Record

WINDOW_ID = "01a22ba7-deae-79f1-9f5f-68e06a583cc4"
ROLLOUT_ID = "01a22ba7-deac-7192-87a1-5835b3f574d7"
ENVIRONMENT = "<environment_context>\n  <cwd>/w</cwd>\n</environment_context>"
ABORTED = "<turn_aborted>\nstopped\n</turn_aborted>"
FULL_WORLD = {"base": 1}

_TOKEN = re.compile(
    r"CP\[(?P<items>.*?)\](?:w(?P<window>\d+))?(?P<resume>r)?(?= |$)|(?P<name>[A-Za-z]+[+-]?)(?:\((?P<args>[^)]*)\))?"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario; `client_turns` is None where the table does not say."""

    number: int
    mode: HistoryMode
    log: str
    history: str
    previous_model: str | None
    reference: str | None
    world: Mapping[str, Any] | None
    window: int
    client_turns: str | None

    @property
    def records(self) -> list[Record]:
        """The log, header included."""
        return parse_log(self.log, self.mode, resume_model="mo" if 56 <= self.number <= 64 else "pm")


OURS: dict[int, dict[str, Any]] = {
    61: {"history": "U(u1) A(a1)", "previous_model": "m", "reference": "TC(t1,m)", "window": 0},
    77: {"history": "U(u1) A(a1)", "previous_model": "m", "reference": "TC(t1,m)", "window": 0},
}
"""Where the input checkpoint must not hide turns that a later marker restores."""

OUR_CLIENT_TURNS = {9: "t1", 16: "(none)", 25: "t1", 26: "(none)", 33: "t1", 51: "t1", 52: "t0 t1", 57: "t1", 61: "t1"}
"""Where the reference's two views disagree: clients see what the model sees."""


def message(role: str, text: str) -> dict[str, Any]:
    """A message of one text part."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def item_of(name: str, arg: str) -> dict[str, Any] | None:
    """The Responses item behind a token, None when the token is no item."""
    match name:
        case "U" | "A" | "D" | "SYS":
            return message({"U": "user", "A": "assistant", "D": "developer", "SYS": "system"}[name], arg)
        case "E":
            return message("user", ENVIRONMENT)
        case "AB":
            return message("user", ABORTED)
        case "FC":
            return {"type": "function_call", "name": "f", "arguments": "{}", "call_id": arg}
        case "FO":
            return {"type": "function_call_output", "call_id": arg, "output": "done"}
        case "CC":
            return {"type": "custom_tool_call", "name": "f", "input": "", "call_id": arg}
        case "R":
            return {"type": "reasoning", "summary": [], "encrypted_content": "enc"}
        case "GS":
            return {"type": "ghost_snapshot", "ghost_commit": {}}
        case _:
            return None


def render(item: Mapping[str, Any]) -> str:
    """The token of an item: the reverse of `item_of`."""
    match item["type"]:
        case "message":
            text = "".join(part["text"] for part in item["content"])
            if text in (ENVIRONMENT, ABORTED):
                return "E" if text == ENVIRONMENT else "AB"
            return {"user": "U", "assistant": "A", "developer": "D"}[item["role"]] + f"({text})"
        case "agent_message":
            return f"AG({item['content'][0]['text']})"
        case "reasoning":
            return "R"
        case kind:
            short = {"function_call": "FC", "function_call_output": "FO", "custom_tool_call": "CC"}
            return f"{short[kind]}({item['call_id']})"


def render_history(history: Any) -> str:
    """A whole history in the table's notation."""
    return " ".join(render(item) for item in history) or "(empty)"


def parse_log(log: str, mode: HistoryMode, *, resume_model: str = "pm") -> list[Record]:
    """The records of a row, header first; ordinals are indices, as in both modes."""
    meta = {"id": ROLLOUT_ID, "history_mode": mode.value, "context_window": {"window_id": WINDOW_ID}, "cwd": "/w"}
    lines: list[tuple[str, dict[str, Any]]] = [("session_meta", meta)]
    patches = 0
    for token in _TOKEN.finditer(log):
        if token["name"] is None:
            lines.append(("compacted", _compacted(token, resume_model)))
            continue
        if token["name"] == "WSp":
            patches += 1
        lines += _lines(token["name"], token["args"] or "", patches)
    return [Record(ROLLOUT_ID, index, kind, payload) for index, (kind, payload) in enumerate(lines)]


def _compacted(token: re.Match[str], resume_model: str) -> dict[str, Any]:
    items = [item_of(part["name"], part["args"] or "") for part in _TOKEN.finditer(token["items"])]
    payload: dict[str, Any] = {"message": "", "replacement_history": items}
    if token["window"] is not None:
        payload["window_number"] = int(token["window"])
    if token["resume"]:
        payload["resume_metadata"] = {"previous_turn_settings": {"model": resume_model}}
    return payload


def _event(name: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    return ("event_msg", {"type": name, **fields})


def _lines(name: str, args: str, patches: int) -> list[tuple[str, dict[str, Any]]]:
    item = item_of(name, args)
    if item is not None:
        return [("response_item", item)]
    if name in ("T", "Tp"):
        t, u, a, m = args.split(",")
        tokens = (("TS", t), ("UE" if name == "T" else "UI", u), ("TC", f"{t},{m}"), ("U", u), ("A", a), ("TE", t))
        return [line for part, arg in tokens for line in _lines(part, arg, patches)]
    if name in ("TS", "TE", "TA"):
        return [_turn_edge(name, args)]
    if name == "TC":
        turn_id, model = args.split(",")
        return [("turn_context", {"model": model} | ({} if turn_id == "-" else {"turn_id": turn_id}))]
    return [_other(name, args, patches)]


def _turn_edge(name: str, turn_id: str) -> tuple[str, dict[str, Any]]:
    turn = {} if turn_id == "-" else {"turn_id": turn_id}
    if name == "TA":
        return _event("turn_aborted", reason="interrupted", **turn)
    return _event("task_started" if name == "TS" else "task_complete", **turn)


def _other(name: str, args: str, patches: int) -> tuple[str, dict[str, Any]]:
    match name:
        case "UE":
            return _event("user_message", message=args)
        case "UI":
            user = {"type": "UserMessage", "id": f"i-{args}", "content": [{"type": "text", "text": args}]}
            return _event("item_completed", item=user)
        case "RB":
            return _event("thread_rolled_back", num_turns=int(args))
        case "WS":
            return ("world_state", {"full": True, "state": FULL_WORLD})
        case "WSp":
            return ("world_state", {"full": False, "state": {f"patch{patches}": True}})
        case "CPL":
            return ("compacted", {"message": args})
        case "IA+" | "IA-":
            body = {"author": "/root", "recipient": "/root/a", "content": args, "trigger_turn": name == "IA+"}
            return ("inter_agent_communication", body)
        case "BOGUS":
            return ("from_the_future", {"a": 1})
        case _:
            raise ValueError(f"unknown token {name}")


def _none(text: str) -> str | None:
    return None if text == "none" else text


def _row(cells: list[str]) -> Row:
    number, mode, log, history, previous, reference, world, window, turns, _ = (cell.strip() for cell in cells)
    worlds = {"none": None, "full": FULL_WORLD, "full+patch": {**FULL_WORLD, "patch1": True}}
    return Row(
        number=int(number),
        mode=HistoryMode.LEGACY if mode == "L" else HistoryMode.PAGINATED,
        log=log.strip("`"),
        history=history.strip("`"),
        previous_model=_none(previous),
        reference=_none(reference),
        world=worlds[world],
        window=int(window),
        client_turns=None if turns == "-" else turns,
    )


def reference_rows() -> list[Row]:
    """All rows as the reference behaves."""
    lines = Path(__file__).with_name("rows.md").read_text(encoding="utf-8").splitlines()
    return [_row(line.strip("|").split("|")) for line in lines if re.match(r"\| \d", line)]


def our_rows() -> list[Row]:
    """All rows as ours must behave."""
    rows = [replace(row, **OURS.get(row.number, {})) for row in reference_rows()]
    return [
        replace(row, client_turns=OUR_CLIENT_TURNS[row.number]) if row.number in OUR_CLIENT_TURNS else row
        for row in rows
    ]
