"""World-state documents: what the model was shown, for the next turn to compare with (01 §3.5, 07 §0-§2).

Key names are the reference's, so that it reads our logs without showing everything again. Long texts are kept as
hashes. Sections of features that we do not have say "off", as the reference writes them.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]

_ABSENT_FEATURES: Mapping[str, Any] = {
    "approved_command_prefixes": [],
    "apps_instructions": False,
    "context_window_guidance": "",
    "environments_instructions": False,
    "git_attribution": False,
    "host_skills": {"includeInstructions": False},
    "managed_developer_instructions": {},
    "multi_agent_mode": {},
    "persistent_mode": {},
    "plugins_instructions": False,
    "realtime": {"active": False},
    "skills": {"includeInstructions": False},
}


def text_hash(text: str) -> str:
    """The fingerprint under which a long text stands in a world state."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def full_document(sections: Mapping[str, Any]) -> Document:
    """A complete world state with the given sections in force."""
    return {**_ABSENT_FEATURES, **sections}


def patch_of(baseline: Mapping[str, Any], sections: Mapping[str, Any]) -> Document:
    """The RFC 7396 patch that brings the given sections up to date; only changed keys, `{}` when there are none.

    Sections that are not given stay as they are: they belong to features of the program that wrote them.
    """
    return {
        name: _difference(baseline[name], value) if name in baseline else value
        for name, value in sections.items()
        if name not in baseline or baseline[name] != value
    }


def _difference(old: Any, new: Any) -> Any:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    changed: Document = {name: None for name in old if name not in new}
    return changed | patch_of(old, new)
