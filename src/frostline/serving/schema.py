"""Schemas of requests and answers, for checking and for the OpenAPI description."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

MOST_TEXTS = 4096
"""Largest number of texts in one call that a service can be set to."""
Kind = Literal["strange", "alarm", "clear", "start", "stop"]
"""Kinds of events."""
TextStatus = Literal["scored", "empty"]
"""Whether a text of a call was scored."""


class Asked(BaseModel):
    """Texts to score, in the order they arrived."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"texts": ["The ice melts."]}]})
    # Only the first wrong text gets a message: half a million of them would stop all other calls for seconds.
    texts: Annotated[
        list[Annotated[str, Field(strict=True)]],
        Field(min_length=1, max_length=MOST_TEXTS, description="The texts."),
        FailFast(),
    ]
    reasons: Annotated[bool, Field(strict=True, description="Whether to say why a text is strange.")] = True


class Sent(BaseModel):
    """Anything that is sent: a field that is not described is a defect, and so is a number that JSON does not have."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Reason(Sent):
    part: str = Field(description="The part of the score: broken, words, foreign, passage, concentration.")
    sigma: float = Field(description="Standard deviations above usual.")
    says: str = Field(description="In words, without any word of the text.")
    tokens: list[int] = Field(description="Places of tokens.")
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
    reasons: list[Reason]
    events: list[Caused] = Field(description="What was stored because of it; on the disk when this answer is sent.")


class AlarmState(Sent):
    active: bool
    level: float = Field(description="Evidence, in nats.")
    threshold: float = Field(description="The alarm rings when the evidence reaches it.")
    says: str


class Answer(Sent):
    texts: list[Scored]
    alarm: AlarmState = Field(description="The stream's alarm after these texts.")
    layers: list[int] = Field(description="Layers that observed and expected are of; 0 is before the first.")


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
    text: str | None = Field(description="The text, only if the service was told to store texts.")


class EventList(Sent):
    events: list[StoredEvent]


class Ready(Sent):
    ready: bool
    degraded: list[str] = Field(description="What does not work although texts are scored.")


class Problem(Sent):
    error: str = Field(description="A sentence.")
