"""What a client may ask for: everything that comes from outside has a bound."""

from dataclasses import dataclass, fields

from frostline.errors import BadParameter


@dataclass(frozen=True)
class Limits:
    body_bytes: int = 2**20
    texts: int = 256
    """In one call."""
    characters: int = 20_000
    """In one text; of its tokens the first 512 are looked at."""
    waiting: int = 2048
    """Texts that wait for the model; beyond it calls are refused with 503."""
    connections: int = 512
    seconds: float = 30.0
    """From a call's arrival to its answer."""
    slow_seconds: float = 10.0
    """For the headers of a call to arrive, and again for its body."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise BadParameter(f"{field.name} is {value}; a limit is above zero.")
