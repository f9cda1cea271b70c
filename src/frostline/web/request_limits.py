"""Limits on requests: everything that comes from outside has a bound."""

from dataclasses import dataclass, fields

from frostline.errors import BadParameter


@dataclass(frozen=True)
class Limits:
    """Bounds on one call, on all calls together, and on their times; each is above zero."""

    body_bytes: int = 2**20
    """Bytes in the body of a call."""
    texts: int = 256
    """Texts in one call."""
    characters: int = 20_000
    """Characters in one text; its first 512 tokens are scored."""
    waiting: int = 2048
    """Queue limit: texts that wait for the model; further calls get 503."""
    connections: int = 512
    """Connections open at the same time."""
    seconds: float = 30.0
    """Seconds from a call's arrival to its answer."""
    slow_seconds: float = 10.0
    """Seconds for the headers of a call to arrive, again for its body, and for the client to read on."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise BadParameter(f"{field.name} is {value}; a limit is above zero.")
