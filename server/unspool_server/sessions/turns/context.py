"""Context of a thread's next request: facts of the moment in, records out. The rules are those of `history.context`."""

from typing import TYPE_CHECKING

from unspool_protocol.log import NewRecord, RecordType

from unspool_server.history.context import ContextFacts, ContextUpdate
from unspool_server.sessions.clock import new_id
from unspool_server.sessions.records import item_record
from unspool_server.sessions.sandbox import context_sandbox
from unspool_server.sessions.session import Session
from unspool_server.sessions.settings import ThreadSettings, collaboration

if TYPE_CHECKING:
    from unspool_server.sessions.turns.turn import Turn


def context_facts(session: Session, settings: ThreadSettings) -> ContextFacts:
    """Everything that the model may have to be told (07 §0-3)."""
    env = session.env
    mode = collaboration(settings)["settings"].get("developer_instructions")
    return ContextFacts(
        cwd=settings.cwd,
        shell=env.shell,
        current_date=env.today(),
        timezone=env.timezone,
        workspace_roots=settings.workspace_roots,
        sandbox=context_sandbox(settings.sandbox),
        developer_instructions=session.facts.developer_instructions,
        agents_md=session.agents_md,
        model=settings.model,
        model_instructions=session.facts.base_instructions,
        permissions_instructions=permissions_text(settings) if env.config.include_permissions_instructions else None,
        collaboration=mode if env.config.include_collaboration_mode_instructions else None,
        include_environment=env.config.include_environment_context,
    )


def permissions_text(settings: ThreadSettings) -> str:
    """What the model is told of sandbox and approvals: free text (07 §2.1), stable for equal settings."""
    sandbox = {
        "dangerFullAccess": "Commands run without a sandbox.",
        "readOnly": "Files may be read everywhere and written nowhere.",
        "workspaceWrite": "Files may be read everywhere and written only in the workspace and its writable roots.",
        "externalSandbox": "The environment is sandboxed from outside.",
    }[settings.sandbox.type]
    approvals = {
        "never": "Nobody can be asked for approval; do without what is refused.",
        "on-request": "Ask for approval when a command needs more than the sandbox grants.",
        "untrusted": "Every command that is not known to be harmless is put before the user first.",
    }.get(str(settings.approval_policy), "Some kinds of action are put before the user first.")
    return f"{sandbox} {approvals}"


def context_records(update: ContextUpdate, turn: "Turn") -> list[NewRecord]:
    """What the model will see, before the record that claims it as baseline (01 §5)."""
    records = [item_record(turn.attributed({**item, "id": f"msg_{new_id()}"})) for item in update.items]
    if update.world_state is not None:
        full, state = update.world_state
        records.append(NewRecord(RecordType.WORLD_STATE, {"full": full, "state": state}))
    return records
