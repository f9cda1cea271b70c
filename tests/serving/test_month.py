"""A tenth of a month of a service: what rang should have, what should ring did, and nothing was lost."""

import pytest

from tests.serving.month import incidents, live_through, table


@pytest.mark.slow
def test_three_days_with_incidents_and_accidents(tmp_path):
    """At one false alarm in 30 days, half of it for sources: one in 3 days has a chance of 1/10 or less; seed fixed."""
    month = live_through(tmp_path / "events.db", days=3.0, rate=1.0, seed=0)
    print(table(month))
    assert {episode.incident for episode in month.alarms} == {incident.name for incident in incidents(3.0)}
    assert month.falsely_active == 0 and all(episode.end is not None for episode in month.alarms)
    # The client that was strange is named, and nobody else.
    assert {e.source for e in month.alarms if e.incident == "one client"} == {"client 7"}
    assert month.delays["whole shift"][0] <= 20 and month.delays["one text in ten"][0] <= 600
    assert any("full" in note for note in month.notes) and month.lost == 0
    begun = sum(episode.severity in ("warning", "critical") for episode in month.alarms)
    assert month.kept["alarm"] == begun and month.kept["strange"] > 0
