"""An import from start to end: find the files, tell their formats, convert or copy them, gather the reports."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from . import claude_code, codex, pi
from .report import FileReport, ImportReport
from .source import SourceFile
from .target import Home

Form = Literal["auto", "codex", "claude", "pi"]

_PEEK_LINES = 50
"""A format shows in its first lines; a file that shows none by then has none."""

_NOT_SESSIONS = frozenset({codex.INDEX, "history.jsonl"})

OnFile = Callable[[FileReport], None]


def import_paths(
    paths: Iterable[Path], home: Path, *, form: Form = "auto", dry_run: bool = False, on_file: OnFile | None = None
) -> ImportReport:
    """Import files and folders of files. What cannot be imported is in the report, nothing is raised for it.

    Args:
        form: The format of all files; `auto` looks at each.
        on_file: Told of every file as it is done.
    """
    report = ImportReport(dry_run=dry_run)
    importer = _Importer(Home(home, dry_run=dry_run))
    for one in importer.run(list(_files(paths, form)), form):
        report.files.append(one)
        if on_file is not None:
            on_file(one)
    return report


class _Importer:
    def __init__(self, home: Home) -> None:
        self._home = home
        self._codex = codex.CodexImport(home)

    def run(self, files: list[Path], form: Form) -> Iterator[FileReport]:
        """Import in an order in which sessions come before their sub-agents."""
        found: dict[str, list[Path]] = {codex.FORMAT: [], claude_code.FORMAT: [], pi.FORMAT: []}
        for path in files:
            kind = form if form != "auto" else detect(path)
            if kind is None:
                report = FileReport(str(path), "unknown")
                report.fail("file", "The format of the file is not known.")
                yield report
            else:
                found[kind].append(path)
        for path in found[codex.FORMAT]:
            yield from self._codex.take(path)
        yield from self._codex.names()
        yield from self._claude(sorted(found[claude_code.FORMAT], key=claude_code.is_agent_file))
        for path in found[pi.FORMAT]:
            report = FileReport(str(path), pi.FORMAT)
            self._convert(path, report, lambda source, report: pi.Pi(source, report).convert())
            yield report

    def _claude(self, files: list[Path]) -> Iterator[FileReport]:
        names: dict[str, str] = {}
        lines: dict[Path, list[tuple[int, str]]] = {}
        for path in files:
            for number, leaf, name in _summaries(path):
                names[leaf] = name
                lines.setdefault(path, []).append((number, leaf))
        used: set[str] = set()
        reports = []
        for path in files:
            report = FileReport(str(path), claude_code.FORMAT)

            def convert(source: SourceFile, report: FileReport) -> object:
                converter = claude_code.ClaudeCode(source, report, names)
                converted = converter.convert()
                used.update(converter.used_names)
                return converted

            self._convert(path, report, convert, only_names=path in lines)
            reports.append((path, report))
        for path, report in reports:
            for number, leaf in lines.get(path, ()):
                if leaf not in used:
                    report.lose(
                        "summary", "It names a message of a session that is not here.", line=number, item_id=leaf
                    )
            yield report

    def _convert(
        self,
        path: Path,
        report: FileReport,
        convert: Callable[[SourceFile, FileReport], object],
        *,
        only_names: bool = False,
    ) -> None:
        try:
            with SourceFile(path) as source:
                converted = convert(source, report)
                if converted is None and not only_names:
                    report.fail("file", "The file holds no session.")
                elif converted is not None:
                    self._home.put_session(converted, report)  # type: ignore[arg-type]
        except OSError as error:
            report.fail("file", f"{error.strerror or error}")


def detect(path: Path) -> Literal["codex", "claude", "pi"] | None:
    """The format of a file by its name and its first lines; None for none of ours."""
    if codex.is_rollout_name(path.name):
        return "codex"
    try:
        with SourceFile(path) as source:
            for line in source:
                for entry in line.objects:
                    if entry["type"] == "session" and isinstance(entry.get("id"), str):
                        return "pi"
                    if entry["type"] in claude_code.KINDS:
                        return "claude"
                    if entry["type"] == "session_meta":
                        return "codex"
                if line.number >= _PEEK_LINES:
                    return None
    except OSError:
        return None
    return None


def _summaries(path: Path) -> Iterator[tuple[int, str, str]]:
    try:
        with SourceFile(path) as source:
            for line, leaf, name in claude_code.summary_lines(source):
                yield line.number, leaf, name
    except OSError:
        return


def _files(paths: Iterable[Path], form: Form) -> Iterator[Path]:
    """The files meant by the paths, each once, in the order of their names."""
    seen: set[Path] = set()
    for path in paths:
        for file in _below(path, form) if path.is_dir() else (path,):
            resolved = file.resolve()
            if resolved not in seen:
                seen.add(resolved)
                yield file


def _below(folder: Path, form: Form) -> Iterator[Path]:
    """Session files of a folder; of a program's home, those of its sessions folders only."""
    roots = [folder / name for name in ("sessions", codex.ARCHIVE, "projects") if (folder / name).is_dir()]
    for root in roots or [folder]:
        for parent, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                # Logs of Codex's first versions, `.json`, are no logs of lines; they are met here to be reported.
                rollout = name.startswith("rollout-") and name.endswith((".json", ".jsonl", ".jsonl.zst"))
                lines = name.endswith((".jsonl", ".jsonl.zst")) and name not in _NOT_SESSIONS and name[0] != "."
                if rollout or (lines and form != "codex"):
                    yield Path(parent) / name
