"""What `exec` understands by its words, its stdin and its files; no daemon is started."""

import io
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from unspool_server.cli.exec import ExecRequest, exec_request, split_words
from unspool_server.cli.options import Failure


class Stdin(io.TextIOWrapper):
    def __init__(self, content: bytes, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(content))
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def request(*words: str, **fields: Any) -> ExecRequest:
    plain: dict[str, Any] = {
        "remote": False,
        "settings": {},
        "model": None,
        "folder": None,
        "sandbox": None,
        "more_folders": (),
        "images": (),
        "schema_file": None,
        "ephemeral": False,
        "last": False,
        "all_folders": False,
        "thread_source": None,
        "skip_git_repo_check": True,
        "bypass": False,
    }
    return exec_request(words, **{**plain, **fields})


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(b"", terminal=True))


@pytest.mark.parametrize(
    ("words", "last", "expected"),
    [
        ((), False, ("start", None, None)),
        (("hi",), False, ("start", None, "hi")),
        (("resume", "ID"), False, ("resume", "ID", None)),
        (("resume", "ID", "more"), False, ("resume", "ID", "more")),
        (("resume", "more"), True, ("resume", None, "more")),
        (("resume",), True, ("resume", None, None)),
        (("fork", "ID", "more"), False, ("fork", "ID", "more")),
    ],
)
def test_words_say_what_to_do(words: tuple[str, ...], last: bool, expected: tuple[str, str | None, str | None]) -> None:
    assert split_words(words, last=last) == expected


@pytest.mark.parametrize(
    ("words", "last"),
    [
        (("a", "b"), False),
        (("resume",), False),
        (("fork",), False),
        (("resume", "a", "b", "c"), False),
        (("hi",), True),
    ],
)
def test_words_that_fit_no_form_are_refused(words: tuple[str, ...], last: bool) -> None:
    with pytest.raises(click.UsageError):
        split_words(words, last=last)


@pytest.mark.parametrize(
    ("words", "stdin", "prompt"),
    [
        (("-",), b"from stdin\n", "from stdin\n"),
        ((), b"from stdin\n", "from stdin\n"),
        (("ask",), b"piped text\n", "ask\n\n<stdin>\npiped text\n</stdin>"),
        (("ask",), b"no newline", "ask\n\n<stdin>\nno newline\n</stdin>"),
        (("ask",), b"  \n", "ask"),
        (("ask",), b"", "ask"),
        (("resume", "ID", "ask"), b"not read", "ask"),
        (("resume", "ID"), b"read", "read"),
        (("fork", "ID"), b"not read", None),
        (("-",), b"\xef\xbb\xbfmarked", "marked"),
    ],
)
def test_piped_input_is_the_prompt_or_a_block_behind_it(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], stdin: bytes, prompt: str | None
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(stdin, terminal=False))

    assert request(*words).prompt == prompt


@pytest.mark.parametrize("words", [(), ("-",), ("resume", "ID")])
def test_without_a_prompt_nothing_is_run(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(b" \n", terminal=False))

    with pytest.raises(Failure) as caught:
        request(*words)

    assert (caught.value.message, caught.value.exit_code) == ("No prompt provided via stdin.", 1)


def test_input_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(b"ab\xff", terminal=False))

    with pytest.raises(Failure, match=r"not valid UTF-8 \(byte 2\)"):
        request("-")


@pytest.mark.usefixtures("terminal")
def test_files_and_folders_are_read_before_anything_starts(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')

    found = request("hi", folder=tmp_path, schema_file=schema, images=(tmp_path / "a.png",), bypass=True)

    assert (found.cwd, found.output_schema, found.sandbox) == (
        str(tmp_path.resolve()),
        {"type": "object"},
        "danger-full-access",
    )
    assert found.images == (tmp_path / "a.png",)
    with pytest.raises(Failure, match="no folder"):
        request("hi", folder=tmp_path / "none")
    with pytest.raises(Failure, match="Failed to read output schema file"):
        request("hi", schema_file=tmp_path / "none.json")
    schema.write_text("{nope")
    with pytest.raises(Failure, match="is not valid JSON"):
        request("hi", schema_file=schema)
    schema.write_text("[1]")
    with pytest.raises(Failure, match="is not a JSON object"):
        request("hi", schema_file=schema)


@pytest.mark.usefixtures("terminal")
def test_a_remote_server_keeps_its_own_folder_and_gets_the_settings() -> None:
    here, there = request("hi"), request("hi", remote=True, settings={"model": "x"})

    assert (here.cwd, here.overrides) == (str(Path.cwd().resolve()), ())
    assert (there.cwd, there.overrides) == (None, (("model", "x"),))
    assert request("hi", remote=True, folder=Path("C:\\work")).cwd == "C:\\work"


@pytest.mark.usefixtures("terminal")
def test_further_folders_are_absolute_here_and_left_alone_for_a_remote_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert request("hi", more_folders=(Path("more"),)).more_folders == (str(tmp_path / "more"),)
    assert request("hi", more_folders=(Path("more"),), remote=True).more_folders == ("more",)
