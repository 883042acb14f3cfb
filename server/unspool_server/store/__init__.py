"""Log stores and catalogues: append, read, branch, list (DESIGN §7)."""

from .catalogue import StoreCatalogue
from .contract import (
    Catalogue,
    ListPage,
    ListQuery,
    Log,
    LogStore,
    NewRollout,
    ReadReport,
    ReadStats,
    RolloutInfo,
    Summariser,
)
from .local import LocalStore
from .memory import MemoryStore

__all__ = [
    "Catalogue",
    "ListPage",
    "ListQuery",
    "LocalStore",
    "Log",
    "LogStore",
    "MemoryStore",
    "NewRollout",
    "ReadReport",
    "ReadStats",
    "RolloutInfo",
    "StoreCatalogue",
    "Summariser",
]
