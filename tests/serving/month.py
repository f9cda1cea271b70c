"""A month of a service, in minutes: a stream of p-values with a daily rhythm, weekends, incidents, and accidents.

Scores of normal texts are standard normal, and p-values are their ranks among calibration texts that were drawn once
for every baseline: what 600 calibration texts say, no more. Stream and event file are the service's own.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from frostline.monitoring.reasons import Reason, Scores
from frostline.serving.events import Events
from frostline.serving.stream import Clock, Stream
from frostline.serving.submission import Submission

DAY = 86400.0
TICK = 10.0
"""Seconds of texts that are taken at once."""
GROUPS, CALIBRATED = 2, 300
"""Groups by length, and calibration texts in each: half as many as a baseline of 3,000 texts has."""
SOURCES = 8
"""Clients that send; the eighth sends a text in twenty."""
REASON = (Reason("foreign", 3.0, "its passages are far from those of the reference"),)


@dataclass(frozen=True)
class Incident:
    """Strange texts from ``start`` on for ``length`` (days): this share of those of one source, or of all."""

    name: str
    start: float
    length: float
    share: float
    sigma: float
    source: int | None = None


@dataclass
class Month:
    """What happened: rings with their times in days and their incident (or none), delays, and how much was lost."""

    alarms: list["Episode"] = field(default_factory=list)
    delays: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Texts (of the source, where it was one) and seconds from an incident's begin to its first alarm."""
    falsely_active: float = 0.0
    """Share of the time in which there was an alarm that no incident explains."""
    texts: int = 0
    exposed: int = 0
    """Texts since the begin of the present incident."""
    notes: list[str] = field(default_factory=list)
    kept: Counter = field(default_factory=Counter)
    lost: int = 0


@dataclass
class Episode:
    """An alarm from its begin to its end, in days; ``incident`` is empty where there should have been none."""

    begin: float
    source: str
    incident: str
    severity: str = "warning"
    end: float | None = None


def incidents(days):
    """Three of them, wherever the month ends."""
    return [
        Incident("whole shift", 0.20 * days, 0.002 * days + 0.05, 1.0, 3.0),
        Incident("one text in ten", 0.47 * days, 0.01 * days + 0.1, 0.1, 4.0),
        Incident("one client", 0.72 * days, 0.005 * days + 0.1, 0.9, 3.0, source=7),
    ]


def live_through(path, *, days=30.0, rate=1.0, seed=0, incidents=None):
    """Live through so many days at so many texts per second in the mean."""
    happening = globals()["incidents"](days) if incidents is None else incidents
    rng = np.random.default_rng([27, seed])
    wall, steady = [1.75e9], [0.0]
    clock = Clock(lambda: wall[0], lambda: steady[0])
    month, falsely = Month(), 0

    def begin(baseline):
        calibration = np.sort(np.random.default_rng([28, seed, baseline]).standard_normal((GROUPS, CALIBRATED)), axis=1)
        name = f"baseline{baseline}"
        events = Events(path, keep=10**6, baseline=name)
        counts = [CALIBRATED] * GROUPS
        stream = Stream(30 * DAY * rate, (0,), counts=counts, rate=rate, clock=clock, baseline=name, alpha=0.01)
        stream.resume(events.state())
        return calibration, events, stream

    calibration, events, stream = begin(0)
    baseline, full = 0, None
    accidents = {"restart": 0.40, "jump": 0.57, "full": 0.83, "baseline1": 0.33, "baseline2": 0.67}
    due = {name: share * days * DAY for name, share in accidents.items()}
    for tick in range(int(days * DAY / TICK)):
        now = tick * TICK
        steady[0] = now
        wall[0] += TICK
        for name in [name for name, time in due.items() if now >= time]:
            del due[name]
            if name == "restart":  # kill -9: nothing is closed in order, but the lock goes
                events.close()
                calibration, events, stream = begin(baseline)
            elif name.startswith("baseline"):
                events.add([], stream.state())
                events.close()
                baseline += 1
                for episode in month.alarms:
                    episode.end = episode.end or now / DAY  # a new baseline knows nothing of it
                calibration, events, stream = begin(baseline)
            elif name == "jump":
                wall[0] += 40 * DAY
                due["back"] = now + 3600
            elif name == "back":
                wall[0] -= 40 * DAY
            elif name == "full":
                pages = events._connection.execute("PRAGMA page_count").fetchone()[0]
                events._connection.execute(f"PRAGMA max_page_count = {pages}")
                due["room"], full = now + 0.02 * days * DAY, now
            elif name == "room":
                events._connection.execute("PRAGMA max_page_count = 1073741823")
        day = now / DAY
        strange = next((i for i in happening if i.start <= day < i.start + i.length), None)
        count = rng.poisson(rate * TICK * (1 + 0.8 * np.sin(2 * np.pi * day)))
        weekend = (int(day) + 4) % 7 >= 5  # the first day is a Friday
        events_of_tick = _texts(stream, calibration, rng, count, strange, weekend, month)
        events_of_tick += stream.pass_time()
        if events_of_tick or tick % 30 == 0:
            events.add(events_of_tick, stream.state())
        if full is not None and events.trouble:
            month.notes.append(f"disk full on day {day:.2f}: {events.trouble}")
            full = None
        for event in events_of_tick:
            going_on = next((e for e in month.alarms if e.source == event.source and e.end is None), None)
            if event.kind == "alarm":
                month.alarms.append(Episode(day, event.source, strange.name if strange else ""))
                if strange is not None and strange.name not in month.delays:
                    month.delays[strange.name] = (month.exposed, DAY * (day - strange.start))
            elif event.kind == "critical":
                going_on.severity = "critical"
            elif event.kind == "clear":
                going_on.end = day
        falsely += any(e.end is None and not e.incident for e in month.alarms)
    month.falsely_active = falsely * TICK / (days * DAY)
    month.kept, month.lost = Counter(event.kind for event in events.select()), events.lost + events.pending
    events.close()
    return month


def _texts(stream, calibration, rng, count, strange, weekend, month):
    """Score so many texts; returns the events."""
    if not count:
        return []
    # Weekend text is longer: other groups of calibration texts, in which p-values are as good.
    groups = rng.choice(GROUPS, count, p=[0.2, 0.8] if weekend else [0.5, 0.5])
    sources = np.where(rng.random(count) < 0.05, 7, rng.integers(0, 7, count))
    z = rng.standard_normal(count)
    if strange is None:
        month.exposed = 0
    else:
        hit = rng.random(count) < strange.share
        if strange.source is not None:
            hit &= sources == strange.source
        month.exposed += int((sources == strange.source).sum()) if strange.source is not None else count
        z = np.where(hit, z + strange.sigma, z)
    above = [CALIBRATED - np.searchsorted(calibration[group], value) for group, value in zip(groups, z, strict=True)]
    p = (1 + np.array(above)) / (1 + CALIBRATED)
    rows = np.zeros((count, 1))
    reasons = tuple(REASON if value <= 0.01 else () for value in p)
    submissions = [Submission(f"{month.texts + n}", source=f"client {sources[n]}") for n in range(count)]
    month.texts += count
    events = stream.take(Scores(z, p, {"foreign": z}, rows, rows, reasons), submissions).events
    stream.remember(events)
    return events


def table(month):
    """What rang, when, and whether it should have, as Markdown; sources that ring while all do are counted only."""
    lines = ["| day | until | whose | severity | should it? |", "|---|---|---|---|---|"]
    whole = [episode for episode in month.alarms if not episode.source]
    for episode in month.alarms:
        end = "goes on" if episode.end is None else f"{episode.end:.3f}"
        inside = [e for e in month.alarms if e.source and e.incident and e.incident == episode.incident]
        if episode in inside and any(e.incident == episode.incident for e in whole):
            continue
        whose = episode.source or "all together" + (f" (and {len(inside)} clients)" if inside else "")
        lines.append(f"| {episode.begin:.3f} | {end} | {whose} | {episode.severity} | {episode.incident or '**no**'} |")
    return "\n".join(lines)
