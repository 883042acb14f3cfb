"""The log store on disk: rollouts as files below a home, as the reference keeps them (01 §4)."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from .files import LocalShelf
from .rollouts import RolloutStore, utc_now
from .shelf import Shelf


class LocalStore(RolloutStore):
    """Rollout files below `home`; the folder need not exist yet.

    Args:
        durable: Barriers also sync, so that "written" survives power loss.
        shelf: Another medium below the same rules, to inject faults.
    """

    def __init__(
        self,
        home: Path,
        *,
        durable: bool = False,
        clock: Callable[[], datetime] = utc_now,
        shelf: Shelf | None = None,
    ) -> None:
        super().__init__(shelf or LocalShelf(home), clock=clock, durable=durable)
        self.home = home
