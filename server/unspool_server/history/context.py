"""Which context items a turn puts before its user message, and the baseline records behind them (07 §0-§3; 06 §2).

Three cases: nothing known (N) shows everything; a reference without world state (U) shows the environment again; with
both (K) each section shows its own difference. Judged by the recorded baseline, never by what history still holds,
except for AGENTS.md when its state is unknown. Pure: clock, files and ids come from the caller.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .agents_md import AgentsMd, due_part
from .environment import Environment, SandboxPolicy, environment_form
from .fields import object_of, role_of, text_of, texts_of
from .state import Item, Reconstruction
from .world import full_document, patch_of, text_hash

MODEL_SWITCH_NOTICE = (
    "The user has switched this conversation to another model. Continue it from here, under these instructions:"
)


@dataclass(frozen=True, slots=True)
class ContextFacts:
    """What is true for the turn that is about to run.

    Attributes:
        shell: Base name of the login shell.
        current_date: `YYYY-MM-DD` in `timezone`.
        workspace_roots: Empty means the cwd.
        developer_instructions: The client's, else the config's; shown in the full form only.
        model_instructions: What a model switch tells the new model to follow.
        permissions_instructions: Body of the permissions block, None when the block is off.
        collaboration: Body of the collaboration mode block, None when it is off.
        include_environment: False: the environment is never shown.
    """

    cwd: str
    shell: str
    current_date: str
    timezone: str
    model: str
    sandbox: SandboxPolicy
    workspace_roots: tuple[str, ...] = ()
    developer_instructions: str | None = None
    agents_md: AgentsMd | None = None
    model_instructions: str = ""
    permissions_instructions: str | None = None
    collaboration: str | None = None
    include_environment: bool = True

    @property
    def environment(self) -> Environment:
        """The part of the facts that the environment text shows."""
        roots = self.workspace_roots or (self.cwd,)
        return Environment(self.cwd, self.shell, self.current_date, self.timezone, roots, self.sandbox)


@dataclass(frozen=True, slots=True)
class ContextUpdate:
    """What to record before the user message, in this order.

    Attributes:
        items: Messages without ids.
        world_state: `(full, state)` of the record that follows them; None when nothing changed.
    """

    items: tuple[Item, ...] = ()
    world_state: tuple[bool, Mapping[str, Any]] | None = None


def initial_context(facts: ContextFacts, *, model_switch: bool = False) -> ContextUpdate:
    """The full form: for a turn that nothing is known for (N), and for the fresh context of a compaction.

    Args:
        model_switch: The previous turn ran with another model; the notice is the first part of the bundle.
    """
    bundle = [_model_switch(facts)] if model_switch else []
    if facts.developer_instructions and facts.developer_instructions.strip():
        bundle.append(facts.developer_instructions)
    bundle += _blocks(facts).values()
    user = [facts.agents_md.part()] if facts.agents_md else []
    if facts.include_environment:
        user.append(facts.environment.text(long=True))
    return ContextUpdate(_items(bundle, user), (True, full_document(_sections(facts))))


def context_update(reconstruction: Reconstruction, facts: ContextFacts) -> ContextUpdate:
    """What the next turn shows of the context, given what the log says the model was shown."""
    if reconstruction.reference_context is None:
        return initial_context(facts, model_switch=is_model_switch(reconstruction, facts.model))
    world = reconstruction.world_state
    known: Mapping[str, Any] = world if world is not None else {}
    blocks = _due_blocks(known, facts, reconstruction.history)
    user = _due_user_parts(known, facts, reconstruction.history)
    switch = [_model_switch(facts)] if is_model_switch(reconstruction, facts.model) else []
    items = (*_items(switch, ()), *_items(blocks, user))
    if world is None:
        return ContextUpdate(items, (True, full_document(_sections(facts))))
    patch = patch_of(world, _sections(facts) | _vanished(world, facts))
    return ContextUpdate(items, (False, patch) if patch else None)


def is_model_switch(reconstruction: Reconstruction, model: str) -> bool:
    """Whether the newest surviving turn ran with another model (07 §3); not when there is none."""
    previous = reconstruction.previous_settings
    return previous is not None and previous.model != model


def message(role: str, texts: Sequence[str]) -> Item:
    """A message item with one text part for each text."""
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text} for text in texts]}


def _items(developer: Sequence[str], user: Sequence[str]) -> tuple[Item, ...]:
    return tuple(message(role, texts) for role, texts in (("developer", developer), ("user", user)) if texts)


def _model_switch(facts: ContextFacts) -> str:
    body = f"{MODEL_SWITCH_NOTICE}\n\n{facts.model_instructions}" if facts.model_instructions else MODEL_SWITCH_NOTICE
    return f"<model_switch>\n{body}\n</model_switch>"


def _blocks(facts: ContextFacts) -> dict[str, str]:
    """The developer blocks that are on, by their section, in the order of the bundle."""
    blocks = {}
    if facts.permissions_instructions is not None:
        tag = "permissions instructions"
        blocks["permissions"] = f"<{tag}>{facts.permissions_instructions}</{tag}>"
    if facts.collaboration is not None:
        body = facts.collaboration.strip("\n")
        blocks["collaboration_mode"] = f"<collaboration_mode>{body}</collaboration_mode>"
    return blocks


def _due_blocks(known: Mapping[str, Any], facts: ContextFacts, history: Sequence[Item]) -> list[str]:
    """Blocks that differ from the baseline; of unknown ones, those that history does not show."""
    due = []
    for name, block in _blocks(facts).items():
        recorded = text_of(object_of(known, name) or {}, "instructions")
        if recorded is None:
            shown = any(block in texts_of(item) for item in history if role_of(item) == "developer")
        else:
            shown = recorded == text_hash(block)
        if not shown:
            due.append(block)
    return due


def _due_user_parts(known: Mapping[str, Any], facts: ContextFacts, history: Sequence[Item]) -> list[str]:
    parts = []
    instructions = due_part(object_of(known, "agents_md"), facts.agents_md, history)
    if instructions is not None:
        parts.append(instructions)
    if facts.include_environment:
        environment = facts.environment
        form = environment_form(object_of(known, "environments"), environment.document())
        if form is not None:
            parts.append(environment.text(long=form == "long"))
    return parts


def _sections(facts: ContextFacts) -> dict[str, Any]:
    """The world-state sections that the facts decide."""
    sections: dict[str, Any] = {
        "agents_md": facts.agents_md.document() if facts.agents_md else {},
        "model": facts.model,
    }
    if facts.include_environment:
        sections["environments"] = facts.environment.document()
    for name, block in _blocks(facts).items():
        sections[name] = {"instructions": text_hash(block)}
    if "collaboration_mode" in sections:
        sections["collaboration_mode"]["model"] = facts.model
    return sections


def _vanished(world: Mapping[str, Any], facts: ContextFacts) -> dict[str, Any]:
    """Blocks that were on and are off now; removed from the baseline, so that they show again when they return."""
    on = _blocks(facts)
    return {name: None for name in ("permissions", "collaboration_mode") if name in world and name not in on}
