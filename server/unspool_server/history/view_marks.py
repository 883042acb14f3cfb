"""Where instruction boundaries lie among client turns, so that a legacy rollback marker cuts both views alike (03 §9).

The model view counts boundaries in history items, the client view shows events; the two tell of the same input in
either order. Places are (index of the turn in the thread, index of the item in the turn).
"""

from dataclasses import dataclass, field

Place = tuple[int, int]


@dataclass(slots=True)
class BoundaryMarks:
    """The places of all boundaries so far, oldest first."""

    places: list[Place] = field(default_factory=list)
    _unseen: bool = False
    """The newest place came from a model item; the client's event of the same input may still follow."""
    _announced: Place | None = None
    """A user event came first; the model item of the same input may still follow."""

    def model_item(self, here: Place) -> None:
        """A boundary item was recorded while the client view stood at `here`."""
        if self._announced is not None:
            self.places.append(self._announced)
            self._announced = None
        else:
            self.places.append(here)
            self._unseen = True

    def client_item(self, here: Place) -> None:
        """A user message is about to be shown at `here`."""
        if self._unseen:
            self.places[-1] = here
            self._unseen = False
        else:
            self._announced = here

    def settle(self) -> None:
        """Something else happened: what comes next belongs to other input."""
        self._unseen, self._announced = False, None

    def cut(self, count: int) -> tuple[int, int | None] | None:
        """Forget the newest `count` boundaries (all of them when there are fewer, 03 §5).

        Returns:
            The first turn that goes, and the number of its items that stay when an older boundary in it survives, else
            None; nothing at all when there is no boundary to cut at.
        """
        self.settle()
        if count <= 0 or not self.places:
            return None
        first = max(len(self.places) - count, 0)
        turn, item = self.places[first]
        shares_turn = first > 0 and self.places[first - 1][0] == turn
        del self.places[first:]
        return turn, item if shares_turn else None
