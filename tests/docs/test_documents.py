"""The documentation says nothing that is not there: links, generated parts, commands, files, targets."""

import importlib.util
import re
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from unspool_client import Client, ThreadHandle
from unspool_protocol.methods import METHODS
from unspool_protocol.reference import render
from unspool_protocol.reference_words import REASONS, REFUSALS
from unspool_server.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
SERVER = ROOT / "server" / "unspool_server"

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_HEADING = re.compile(r"^#+ (.+)$", re.M)

every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


def text_of(path: Path) -> str:
    return path.read_text("utf-8")


def slugs_of(path: Path) -> list[str]:
    """Anchors of headings as GitHub makes them."""
    headings = _HEADING.findall(_FENCE.sub("", text_of(path)))
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@every_document
def test_every_link_leads_to_a_file_and_a_heading_that_exist(document: Path) -> None:
    broken = []
    for link in _LINK.findall(_FENCE.sub("", text_of(document))):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        if not target.is_file() or (anchor and anchor not in slugs_of(target)):
            broken.append(link)
    assert broken == []


def test_headings_of_the_reference_have_anchors_of_their_own() -> None:
    counted = Counter(slugs_of(ROOT / "docs" / "protocol.md"))
    assert [slug for slug, count in counted.items() if count > 1] == []


def test_the_protocol_reference_is_what_the_models_say() -> None:
    assert text_of(ROOT / "docs" / "protocol.md") == render(), "run `make docs`"


def test_the_table_of_settings_is_what_the_configuration_models_say() -> None:
    wanted: dict[Path, str] = generator().outputs()
    assert {path.name: text_of(path) == text for path, text in wanted.items()} == {
        "protocol.md": True,
        "operations.md": True,
        "security.md": True,
    }, "run `make docs`"


def test_the_reference_speaks_of_every_method_and_of_no_inner_source() -> None:
    manual = render()
    assert [name for name in METHODS if f"### `{name}`\n" not in manual] == []
    assert re.findall(r"§.*", manual) == []


def test_every_reason_that_the_server_gives_is_in_the_reference() -> None:
    given: set[str] = set()
    for path in SERVER.rglob("*.py"):
        if path.parts[len(SERVER.parts)] in ("history", "model"):
            continue
        source = text_of(path)
        given |= set(re.findall(r'data=\{"reason": "(\w+)"', source))
        given |= set(re.findall(r'^    reason(?:: str)? = "(\w+)"', source, re.M))
        given |= set(re.findall(r'WireError\([^\n]*\{"reason": "(\w+)"', source))
        given |= set(re.findall(r'\bdata(?:: [^=]+)? = \{"reason": "(\w+)"', source))
        given |= set(re.findall(r'(?:Malformed|_invalid)\([^\n]*, "(\w+)"\)', source))
    assert given - REASONS.keys() == set()
    assert {"activeTurn", "parseError", "writeFailed", "nothingToUndo"} <= given


def test_refusals_name_methods_and_reasons_that_exist() -> None:
    assert REFUSALS.keys() - METHODS.keys() == set()
    assert {reason for reasons in REFUSALS.values() for reason in reasons} - REASONS.keys() == set()


def command_lines() -> Iterator[tuple[str, str]]:
    """Every call of `unspool` in shell blocks and in code spans, with the document that has it."""
    for document in DOCUMENTS:
        text = text_of(document)
        shell = [line for language, block in _FENCE.findall(text) if language == "sh" for line in block.splitlines()]
        spans = re.findall(r"`([^`\n]+)`", _FENCE.sub("", text))
        for line in [*shell, *spans]:
            found = re.search(r"(?:^|\| )unspool ([a-z].*)", line.partition("#")[0])
            if found:
                yield document.name, found[1].strip()


def check_command(line: str) -> str:
    """The complaint about a command line, empty where all its commands and options exist."""
    words = line.split()
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return f"no command {words[0]}"
        command = found
        words = words[1:]
    known = {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]}
    unknown = [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]
    return f"no option {unknown[0]}" if unknown else ""


def test_every_command_and_option_in_the_documents_exists() -> None:
    lines = list(command_lines())
    assert len(lines) > 10
    complaints = {line: check_command(line) for _, line in lines}
    assert {line: complaint for line, complaint in complaints.items() if complaint} == {}


def test_every_command_is_in_the_operations_manual() -> None:
    manual = text_of(ROOT / "docs" / "operations.md")
    assert [name for name in COMMANDS if f"unspool {name}" not in manual] == []


def test_subcommands_named_for_threads_exist() -> None:
    row = next(line for line in text_of(ROOT / "docs" / "operations.md").splitlines() if "`unspool threads`" in line)
    threads = main.get_command(click.Context(main), "threads")
    assert isinstance(threads, click.Group)
    assert set(re.findall(r"`(\w+)`", row.split("|")[2])) - threads.commands.keys() == set()


@every_document
def test_python_examples_compile_and_use_methods_that_the_client_has(document: Path) -> None:
    public = {name for kind in (Client, ThreadHandle) for name in dir(kind) if not name.startswith("_")}
    for language, block in _FENCE.findall(text_of(document)):
        if language == "python":
            compile(block, document.name, "exec", flags=0x2000)  # top-level await
            used = set(re.findall(r"\b(?:client|thread|child|other|Client)\.(\w+)", block))
            assert used - public == set()


@every_document
def test_toml_examples_are_toml(document: Path) -> None:
    for language, block in _FENCE.findall(text_of(document)):
        if language == "toml":
            tomllib.loads(block)


@every_document
def test_make_targets_in_the_documents_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", text_of(ROOT / "Makefile"), re.M))
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", text_of(document), re.M)) - targets == set()


def test_files_named_in_the_architecture_exist() -> None:
    text = text_of(ROOT / "docs" / "architecture.md")
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", text))
    roots = (ROOT, SERVER, ROOT / "protocol", ROOT / "clients")
    assert [name for name in sorted(named) if not any((root / name).is_file() for root in roots)] == []
    folders = re.findall(r"`((?:server|protocol|clients)/[\w/]+)`", text)
    assert [name for name in folders if not (ROOT / name).is_dir()] == []


@pytest.mark.parametrize("name", ["architecture.svg", "branch.svg"])
def test_pictures_are_well_formed_and_have_a_description(name: str) -> None:
    picture = ET.parse(ROOT / "docs" / name).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert picture.tag == f"{space}svg"
    assert all((picture.findtext(f"{space}{part}") or "").strip() for part in ("title", "desc"))


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    return found


def test_the_licence_is_the_one_that_the_project_names() -> None:
    assert project()["license"] == "Apache-2.0"
    text = text_of(ROOT / "LICENSE")
    assert "Apache License" in text and "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_ci_calls_make_test_and_nothing_else() -> None:
    script = ROOT / ".ci" / "run"
    lines = [line for line in text_of(script).splitlines() if line and not line.startswith("#")]
    assert lines == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "make test"]
    assert script.stat().st_mode & 0o111
