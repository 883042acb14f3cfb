"""What docs/security.md shows works as it is shown."""

import re
import tomllib
from pathlib import Path

import pytest
from unspool_server.access.bearer import Unauthorized
from unspool_server.access.principal import Principal, Scope
from unspool_server.access.signed import DEFAULT_SKEW_S, MIN_SECRET_BYTES
from unspool_server.cli.admission import rules_of
from unspool_server.cli.options import Listen, ServerOptions
from unspool_server.config_file import load_config

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text("utf-8")
LOOPBACK = ServerOptions(listen=Listen("ws", "127.0.0.1", 0))


def test_the_configured_token_of_the_page_opens_what_the_page_says(tmp_path: Path) -> None:
    found = re.search(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)
    assert found is not None and tomllib.loads(found[1])["access"]["tokens"]
    (tmp_path / "config.toml").write_text(found[1])
    config, warnings = load_config(tmp_path, environ={}, strict=True)
    assert not warnings
    verifier = rules_of(LOOPBACK, config.access, tmp_path).verifier
    assert verifier is not None
    assert verifier.verify("hello") == Principal("ci", "team-a", frozenset({Scope.WRITE}))
    with pytest.raises(Unauthorized):
        verifier.verify("hullo")


def test_a_token_table_with_a_key_that_means_nothing_is_told(tmp_path: Path) -> None:
    digest = "0" * 64
    (tmp_path / "config.toml").write_text(f'[[access.tokens]]\nname = "x"\nsha256 = "{digest}"\ntennant = "a"\n')
    _, warnings = load_config(tmp_path, environ={})
    assert warnings == ["unknown configuration key `access.tokens[0].tennant` is ignored"]


def test_the_figures_of_the_page_are_those_of_the_program() -> None:
    assert f"{DEFAULT_SKEW_S} s of tolerance" in PAGE
    assert f"a secret of {MIN_SECRET_BYTES} bytes or\nmore" in PAGE


def test_names_in_host_are_checked_on_loopback_and_elsewhere_only_where_some_are_configured(tmp_path: Path) -> None:
    elsewhere = ServerOptions(listen=Listen("ws", "0.0.0.0", 0), home_token=True)
    config, _ = load_config(tmp_path, environ={})
    named, _ = load_config(tmp_path, overrides={"access.allowed_hosts": '["box"]'}, environ={})
    assert not rules_of(LOOPBACK, config.access, tmp_path).provenance.host_allowed("evil.example")
    assert rules_of(elsewhere, config.access, tmp_path).provenance.host_allowed("any.example")
    assert not rules_of(elsewhere, named.access, tmp_path).provenance.host_allowed("any.example")
    assert rules_of(elsewhere, named.access, tmp_path).provenance.host_allowed("box:4500")
