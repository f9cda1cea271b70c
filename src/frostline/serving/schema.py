"""Schemas of requests and answers, for checking and for the OpenAPI description."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, StringConstraints

MOST_TEXTS = 4096
"""Largest number of texts in one call that a service can be set to."""
LONGEST_ID = 128
"""Largest number of characters in a client's name for a text."""
LONGEST_SOURCE = 64
"""Largest number of characters in the name of a source."""
LONGEST_REASON = 500
"""Largest number of characters in what an operator says."""
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]*$"
"""Names without control characters, and without marks that reverse the text around them on a page or in a terminal."""
Kind = Literal["strange", "alarm", "critical", "clear", "acknowledged", "reset", "maintenance", "start", "stop"]
"""Kinds of events."""
TextStatus = Literal["scored", "empty"]
"""Whether a text of a call was scored."""
Said = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1, pattern=PRINTABLE)]
"""Words of an operator."""
Severity = Literal["none", "warning", "critical"]
"""Severities of an alarm."""


class NamedText(BaseModel):
    """A text with the client's names for it and for where it comes from."""

    model_config = ConfigDict(extra="forbid")
    text: str = Field(strict=True)
    id: str = Field("", strict=True, max_length=LONGEST_ID, pattern=PRINTABLE, description="The client's name for it.")
    source: str = Field(
        "",
        strict=True,
        max_length=LONGEST_SOURCE,
        pattern=PRINTABLE,
        description="Who it comes from; has an alarm of its own.",
    )


class Asked(BaseModel):
    """Texts to score, in the order they arrived."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"texts": ["The ice melts.", {"text": "So does the snow.", "id": "42", "source": "shop"}]}]
        },
    )
    # Only the first wrong text gets a message: half a million of them would stop all other calls for seconds.
    texts: Annotated[
        list[Annotated[str, Field(strict=True)] | NamedText],
        Field(min_length=1, max_length=MOST_TEXTS, description="The texts, each a string or an object with names."),
        FailFast(),
    ]
    reasons: Annotated[bool, Field(strict=True, description="Whether to say why a text is strange.")] = True
    dry_run: Annotated[bool, Field(strict=True, description="Score the texts, and count them for nothing.")] = False


class Sent(BaseModel):
    """Anything that is sent: a field that is not described is a defect, and so is a number that JSON does not have."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Reason(Sent):
    part: str = Field(
        description="A plain fact (script, markup, repetition, length) or a part of the score: broken, words, …"
    )
    sigma: float = Field(description="Standard deviations above usual.")
    says: str = Field(description="In words, without any word of the text.")
    tokens: list[int] = Field(description="Places of tokens.")
    layers: list[list[float]] = Field([], description="Layer, what it was observed to be there, and what is usual.")
    picture: str = Field("", description="A bar per layer: ▄ is usual, one bar up or down is one standard deviation.")
    named: list[str] = Field(description="These tokens.")


class Caused(Sent):
    kind: Kind
    id: int | None = Field(description="Its number; null if the disk took it not yet (see /readyz).")


class Scored(Sent):
    status: TextStatus = Field("scored", description="empty: the text has no token, and score and p_value are null.")
    score: float | None = Field(description="Larger is stranger.")
    p_value: float | None = Field(
        description="Share of calibration texts of such a length that are at least as strange."
    )
    strange: bool = Field(description="Whether the p-value is at most alpha.")
    parts: dict[str, float] = Field(description="Parts of the score, standard normal for normal texts.")
    observed: list[float] = Field(description="Resultant length of the tokens at every layer looked at.")
    expected: list[float] = Field(description="What the reference makes one expect there.")
    spread: list[float] = Field([], description="Standard deviation of the difference; only of a deep profile.")
    reasons: list[Reason]
    id: str = Field(description="The client's name for the text.")
    source: str = Field(description="Who the text comes from.")
    repeated: bool = Field(description="Whether the same text was just seen; then it is no evidence.")
    events: list[Caused] = Field(description="What was stored because of it; on the disk when this answer is sent.")


class AlarmState(Sent):
    active: bool = Field(description="Whether any alarm is on.")
    severity: Severity
    sources: list[str] = Field(description="Sources whose alarm is on; an empty name stands for all texts together.")
    level: float = Field(description="Evidence of all texts together, in nats.")
    threshold: float = Field(description="An alarm rings when its evidence reaches it.")
    says: str


class Answer(Sent):
    texts: list[Scored]
    alarm: AlarmState = Field(description="The stream's alarm after these texts.")
    layers: list[int] = Field(
        description="Layers that observed and expected are of; 0 is before the first. Attention halves if deep."
    )


class StoredEvent(Sent):
    id: int
    kind: Kind
    time: float = Field(description="Seconds since 1970.")
    texts: int = Field(description="Texts scored until then.")
    p_value: float | None
    score: float | None
    level: float | None
    details: dict[str, object]
    replica: str = Field(description="The name that this service was given.")
    source: str = Field(description="Who the text came from, or whose alarm it is.")
    text_id: str = Field(description="The client's name for the text.")
    baseline: str = Field(description="Short hash of the baseline.")
    text: str | None = Field(description="The text, only if the service was told to store texts.")


class CalibrationVerdict(Sent):
    verdict: Literal["good", "low", "high", "unknown"]
    says: str
    texts: int
    distance: float | None
    allowed: float | None


class SourceStatus(Sent):
    """One source, or all texts together (whose name is empty)."""

    source: str
    texts: int
    strange: int
    rate: float | None = Field(description="Texts per second over about the last hour.")
    recent: int = Field(description="Last texts that recent_strange and health are of.")
    recent_strange: int
    severity: Severity
    level: float = Field(description="Evidence, in nats.")
    since: float | None = Field(description="When the alarm, or the quiet after it, began: seconds since 1970.")
    why: str = Field(description="The reasons of its last strange texts, in words.")
    examples: list[str] = Field(description="Three of its last strange texts, by the client's names or as events.")
    acknowledged: dict[str, object] | None = Field(description="who, why and when, once somebody has seen the alarm.")
    health: CalibrationVerdict


class ServiceStatus(Sent):
    """Everything an operator asks first."""

    headline: str
    says: str
    advice: str
    promise: str = Field(description="How often there may be a false alarm.")
    severity: Severity
    alarm: bool
    level: float
    threshold: float
    rate: float | None = Field(description="Texts per second over about the last hour.")
    repeated: int
    maintenance: dict[str, object] | None
    all: SourceStatus
    sources: list[SourceStatus] = Field(description="Sources that ring, then those with the most texts; 20 at most.")
    sources_known: int
    model: str
    baseline: str
    baseline_hash: str
    degraded: list[str]
    draining: bool
    now: float = Field(description="Seconds since 1970.")


class Control(BaseModel):
    """An action of an operator; it becomes an event. A maintenance window has no source."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "if": {"properties": {"action": {"const": "maintenance"}}},
            "then": {"properties": {"source": {"type": "null"}}},
        },
    )
    action: Literal["acknowledge", "reset", "maintenance"]
    who: Said = Field(max_length=LONGEST_SOURCE)
    why: Said = Field(max_length=LONGEST_REASON)
    source: str | None = Field(
        None,
        strict=True,
        max_length=LONGEST_SOURCE,
        description="One source; an empty name is all texts together; none is every alarm.",
    )
    seconds: float = Field(0.0, ge=0, le=7 * 86400, description="Of a maintenance window; 0 ends it.")


class EventList(Sent):
    events: list[StoredEvent]


class Ready(Sent):
    ready: bool
    degraded: list[str] = Field(description="What does not work although texts are scored.")


class Problem(Sent):
    error: str = Field(description="A sentence.")
