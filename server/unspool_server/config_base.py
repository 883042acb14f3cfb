"""What all tables of the configuration share: their base, and the error that names a key."""

from pydantic import BaseModel, ConfigDict

from unspool_server.errors import UnspoolError


class ConfigError(UnspoolError):
    """The configuration cannot be used; `key` is the dotted key at fault, empty when the file itself is."""

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__(message)
        self.message, self.key = message, key


class ConfigModel(BaseModel):
    """A table of the configuration. Unknown keys are dropped here; the loader reports them first."""

    model_config = ConfigDict(frozen=True, extra="ignore")
