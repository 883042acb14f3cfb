"""The texts of the context: environment forms, AGENTS.md rules, developer bundle, model switch, baseline patches."""

from dataclasses import replace
from typing import Any

import pytest
from unspool_server.history.agents_md import (
    REMOVED_NOTICE,
    REPLACED_NOTICE,
    AgentsMd,
    agents_md_candidates,
    assemble_agents_md,
)
from unspool_server.history.context import ContextFacts, context_update, initial_context, message
from unspool_server.history.environment import Environment, SandboxPolicy
from unspool_server.history.state import Item, PreviousSettings, Reconstruction
from unspool_server.history.world import patch_of

FULL_ACCESS = SandboxPolicy("danger-full-access")
FACTS = ContextFacts("/w", "bash", "2026-11-30", "Etc/UTC", "m", FULL_ACCESS)
LONG = (
    "<environment_context>\n  <cwd>/w</cwd>\n  <shell>bash</shell>\n  <current_date>2026-11-30</current_date>\n"
    "  <timezone>Etc/UTC</timezone>\n  <filesystem><workspace_roots><root>/w</root></workspace_roots>"
    '<permission_profile type="disabled"><file_system type="unrestricted" /></permission_profile></filesystem>\n'
    "</environment_context>"
)


def shown(facts: ContextFacts) -> Reconstruction:
    """A thread whose last turn was shown exactly these facts."""
    update = initial_context(facts)
    assert update.world_state is not None
    settings = PreviousSettings(facts.model)
    return Reconstruction(update.items, settings, {"model": facts.model}, update.world_state[1])


def unknown(*history: Item) -> Reconstruction:
    """A thread of an old version: a reference, but no world state."""
    return Reconstruction(history, PreviousSettings("m"), {"model": "m"})


def texts(items: tuple[Item, ...]) -> list[tuple[str, list[str]]]:
    return [(item["role"], [part["text"] for part in item["content"]]) for item in items]


def entries(sandbox: SandboxPolicy, roots: tuple[str, ...] = ("/w",)) -> str:
    environment = Environment("/w", "bash", "2026-11-30", "Etc/UTC", roots, sandbox)
    return environment.filesystem.split("</workspace_roots>")[1].removesuffix("</filesystem>")


def managed(*parts: str) -> str:
    inner = "".join(parts)
    return (
        f'<permission_profile type="managed"><file_system type="restricted">{inner}</file_system></permission_profile>'
    )


def read(path: str) -> str:
    return f'<entry access="read"><path>{path}</path></entry>'


def write(path: str) -> str:
    return f'<entry access="write"><path>{path}</path></entry>'


ROOT = '<entry access="read"><special>:root</special></entry>'
SLASH_TMP = '<entry access="write"><special>:slash_tmp</special></entry>'
TMPDIR = '<entry access="write"><special>:tmpdir</special></entry>'
NAMES = (".git", ".agents", ".codex", ".aws")


def test_the_long_form_holds_every_line_in_order() -> None:
    assert texts(initial_context(FACTS).items) == [("user", [LONG])]


def test_each_sandbox_has_its_profile() -> None:
    assert entries(FULL_ACCESS) == (
        '<permission_profile type="disabled"><file_system type="unrestricted" /></permission_profile>'
    )
    assert entries(SandboxPolicy("external")) == (
        '<permission_profile type="external"><file_system type="external" /></permission_profile>'
    )
    assert entries(SandboxPolicy("read-only")) == managed(ROOT)


def test_a_writable_workspace_lists_its_entries_in_order() -> None:
    policy = SandboxPolicy("workspace-write", writable_roots=("/extra",))
    protected = [read(f"/w/{name}") for name in NAMES]
    assert entries(policy) == managed(ROOT, write("/w"), SLASH_TMP, TMPDIR, write("/extra"), *protected)
    bare = SandboxPolicy("workspace-write", exclude_tmpdir=True, exclude_slash_tmp=True)
    assert entries(bare) == managed(ROOT, write("/w"), *protected)


def test_several_workspace_roots_are_listed_root_by_root_and_name_by_name() -> None:
    policy = SandboxPolicy("workspace-write")
    protected = [read(f"{root}/{name}") for name in NAMES for root in ("/w", "/v")]
    expected = managed(ROOT, write("/w"), write("/v"), SLASH_TMP, TMPDIR, *protected)
    assert entries(policy, ("/w", "/v")) == expected


def test_paths_are_escaped_and_made_plain() -> None:
    facts = replace(FACTS, cwd="/a&b/<c>/../'d'/")
    text = texts(initial_context(facts).items)[0][1][0]
    assert "<cwd>/a&amp;b/&apos;d&apos;</cwd>" in text
    assert "<root>/a&amp;b/&apos;d&apos;</root>" in text


def test_without_the_environment_nothing_is_sent() -> None:
    facts = replace(FACTS, include_environment=False)
    assert initial_context(facts).items == ()
    assert context_update(unknown(), facts).items == ()


CHANGES: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"cwd": "/v"}, "long"),
    ({"cwd": "/v", "workspace_roots": ("/w",)}, "long"),
    ({"shell": "zsh"}, "long"),
    ({"cwd": "/v", "sandbox": SandboxPolicy("read-only")}, "long"),
    ({"sandbox": SandboxPolicy("read-only")}, "short"),
    ({"workspace_roots": ("/w", "/v")}, "short"),
    ({"current_date": "2026-12-01"}, "short"),
    ({"timezone": "Europe/Rome"}, "short"),
    ({"sandbox": SandboxPolicy("danger-full-access", network=True)}, None),
]


@pytest.mark.parametrize(("change", "form"), CHANGES)
def test_a_change_brings_the_form_that_shows_it(change: dict[str, Any], form: str | None) -> None:
    facts = replace(FACTS, **change)
    update = context_update(shown(FACTS), facts)
    want = [] if form is None else [("user", [facts.environment.text(long=form == "long")])]
    assert texts(update.items) == want
    assert (update.world_state is None) is (form is None)


def test_the_short_form_leaves_out_cwd_and_shell_only() -> None:
    short = FACTS.environment.text(long=False)
    assert short == LONG.replace("  <cwd>/w</cwd>\n  <shell>bash</shell>\n", "")


def test_an_environment_unknown_to_the_baseline_is_shown_whole() -> None:
    known = shown(FACTS)
    assert known.world_state is not None
    world = {key: value for key, value in known.world_state.items() if key != "environments"}
    assert texts(context_update(replace(known, world_state=world), FACTS).items) == [("user", [LONG])]


def test_a_patch_names_only_what_changed() -> None:
    update = context_update(shown(FACTS), replace(FACTS, shell="zsh", model="m"))
    assert update.world_state == (False, {"environments": {"environments": {"local": {"shell": "zsh"}}}})
    assert patch_of({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}, "d": 3}) == {"a": {"c": None}, "d": 3}


# -- AGENTS.md ---------------------------------------------------------------------------------------------------------

OLD, NEW = AgentsMd("/w", "old rules\n"), AgentsMd("/w", "new rules\n")


def framed(text: str, head: str = "# AGENTS.md instructions for /w") -> str:
    return f"{head}\n\n<INSTRUCTIONS>\n{text}\n</INSTRUCTIONS>"


REMOVED = framed(REMOVED_NOTICE, "# AGENTS.md instructions")


def instructions(known: Reconstruction, now: AgentsMd | None) -> str | None:
    """The AGENTS.md part that the next turn sends, None when it sends none."""
    items = context_update(known, replace(FACTS, agents_md=now)).items
    parts = [text for _, found in texts(items) for text in found if text.startswith("# AGENTS.md")]
    assert len(parts) <= 1
    return parts[0] if parts else None


def test_the_part_stands_before_the_environment_in_one_item() -> None:
    assert texts(initial_context(replace(FACTS, agents_md=NEW)).items) == [("user", [framed("new rules\n"), LONG])]


def test_a_global_text_names_no_folder() -> None:
    facts = replace(FACTS, agents_md=AgentsMd("/w", "shared", is_global_only=True))
    assert texts(initial_context(facts).items)[0][1][0] == framed("shared", "# AGENTS.md instructions")


def test_known_instructions_are_compared_with_the_baseline() -> None:
    without, with_old = shown(FACTS), shown(replace(FACTS, agents_md=OLD))
    assert instructions(without, None) is None
    assert instructions(without, NEW) == framed("new rules\n")
    assert instructions(with_old, OLD) is None
    assert instructions(with_old, NEW) == framed(f"{REPLACED_NOTICE}\n\nnew rules\n")
    moved = framed(f"{REPLACED_NOTICE}\n\nold rules\n", "# AGENTS.md instructions for /v")
    assert instructions(with_old, replace(OLD, directory="/v")) == moved
    assert instructions(with_old, None) == REMOVED


def test_removed_instructions_are_null_in_the_patch() -> None:
    update = context_update(shown(replace(FACTS, agents_md=OLD)), FACTS)
    assert update.world_state == (False, {"agents_md": {"directory": None, "text": None}})


def test_unknown_instructions_are_judged_by_the_history() -> None:
    told = message("user", [framed("old rules\n")])
    assert instructions(unknown(told), OLD) == framed(f"{REPLACED_NOTICE}\n\nold rules\n")
    assert instructions(unknown(told), None) == REMOVED
    assert instructions(unknown(), NEW) == framed("new rules\n")
    assert instructions(unknown(), None) is None


def test_a_turn_that_nothing_is_known_for_gives_no_notice() -> None:
    told = message("user", [framed("old rules\n")])
    assert instructions(Reconstruction((told,)), None) is None
    assert instructions(Reconstruction((told,)), NEW) == framed("new rules\n")


def test_files_are_looked_for_from_the_project_root_down() -> None:
    assert agents_md_candidates("/p/a", "/p") == [
        ("/p/AGENTS.override.md", "/p/AGENTS.md"),
        ("/p/a/AGENTS.override.md", "/p/a/AGENTS.md"),
    ]
    assert agents_md_candidates("/p/a", None) == [("/p/a/AGENTS.override.md", "/p/a/AGENTS.md")]
    assert agents_md_candidates("/p", "/p") == [("/p/AGENTS.override.md", "/p/AGENTS.md")]


def test_texts_are_joined_with_the_global_one_in_front() -> None:
    assert assemble_agents_md("/w", ["a\n", "b\n"], "  g \n") == AgentsMd(
        "/w", "g\n\n--- project-doc ---\n\na\n\n\nb\n"
    )
    assert assemble_agents_md("/w", [], " g\n") == AgentsMd("/w", "g", is_global_only=True)
    assert assemble_agents_md("/w", [" \n"], "\n") is None


# -- developer items ---------------------------------------------------------------------------------------------------


def test_the_full_form_bundles_every_section_in_one_item() -> None:
    facts = replace(
        FACTS,
        developer_instructions="DEV",
        permissions_instructions="PR",
        collaboration="\nCM\n",
        model_instructions="base",
    )
    role, parts = texts(initial_context(facts, model_switch=True).items)[0]
    assert role == "developer"
    assert parts[0].startswith("<model_switch>\n")
    assert parts[0].endswith("\n\nbase\n</model_switch>")
    blocks = ["<permissions instructions>PR</permissions instructions>", "<collaboration_mode>CM</collaboration_mode>"]
    assert parts[1:] == ["DEV", *blocks]


def test_blank_developer_instructions_are_none() -> None:
    assert initial_context(replace(FACTS, developer_instructions=" \n")).items == initial_context(FACTS).items


def test_developer_instructions_are_not_shown_again_or_anew() -> None:
    facts = replace(FACTS, developer_instructions="DEV")
    assert context_update(shown(FACTS), facts).items == ()
    assert texts(context_update(unknown(), facts).items) == [("user", [LONG])]


def test_a_switch_is_an_item_of_its_own_before_the_other_differences() -> None:
    facts = replace(FACTS, model="n", permissions_instructions="PR", cwd="/v")
    items = texts(context_update(shown(replace(FACTS, permissions_instructions="old")), facts).items)
    assert [role for role, _ in items] == ["developer", "developer", "user"]
    assert items[0][1][0].startswith("<model_switch>\n")
    assert items[1][1] == ["<permissions instructions>PR</permissions instructions>"]


def test_the_previous_turn_decides_about_a_switch_not_the_baseline() -> None:
    back = replace(shown(FACTS), previous_settings=PreviousSettings("other"))
    assert [role for role, _ in texts(context_update(back, FACTS).items)] == ["developer"]
    assert context_update(replace(shown(FACTS), previous_settings=None), replace(FACTS, model="n")).items == ()


def test_a_switch_without_baseline_opens_the_bundle() -> None:
    facts = replace(FACTS, developer_instructions="DEV")
    items = texts(context_update(Reconstruction(previous_settings=PreviousSettings("other")), facts).items)
    assert [len(parts) for _, parts in items] == [2, 1]
    assert items[0][1][1] == "DEV"


def test_blocks_that_history_shows_are_not_repeated_when_their_baseline_is_unknown() -> None:
    facts = replace(FACTS, permissions_instructions="PR")
    told = message("developer", ["<permissions instructions>PR</permissions instructions>"])
    assert [role for role, _ in texts(context_update(unknown(told), facts).items)] == ["user"]
    assert [role for role, _ in texts(context_update(unknown(), facts).items)] == ["developer", "user"]


def test_a_block_that_was_switched_off_shows_again_when_it_returns() -> None:
    facts = replace(FACTS, permissions_instructions="PR")
    known = shown(facts)
    update = context_update(known, FACTS)
    assert (update.items, update.world_state) == ((), (False, {"permissions": None}))
    assert known.world_state is not None
    without = {key: value for key, value in known.world_state.items() if key != "permissions"}
    later = replace(known, history=(), world_state=without)
    assert [role for role, _ in texts(context_update(later, facts).items)] == ["developer"]
