"""frostline score: how strange texts are, against a baseline."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frostline.cli import options
from frostline.cli.failing import ANSWER_NO

if TYPE_CHECKING:
    from frostline.monitoring.reasons import Scores

SHOWN = 10
"""Strange texts that are printed."""


def score(
    baseline: Annotated[Path, typer.Argument(help="A .frost file that frostline baseline wrote.")],
    model: Annotated[str, typer.Option(help="The model it is of: a folder, or an id on the model hub.")],
    text: Annotated[str, typer.Option(help="A file of texts, one per line.")],
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Texts with p-values up to this are strange.")] = 0.01,
    false_alarm_every: Annotated[
        str, typer.Option(help="The stream's alarm rings falsely once in this time (30d, 12h), or number of texts.")
    ] = "30d",
    rate: Annotated[float, typer.Option(help="Texts per second at which that time is promised.")] = 10.0,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 when the stream's alarm rings.")] = False,
    profile: options.Profile = "full",
    light: options.Light = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Score texts as a stream: p-values and reasons for each, and an alarm for small shifts that persist.

    Example: frostline score enc.frost --model path/to/all-MiniLM-L6-v2 --text today.txt
    """
    from frostline.cli.progress import progress_bar
    from frostline.encoders.corpus import read_texts
    from frostline.monitoring.alarm import Alarm, texts_between_alarms
    from frostline.monitoring.baseline_file import load_baseline
    from frostline.monitoring.calibration import check_alpha

    every = texts_between_alarms(false_alarm_every, rate)
    texts = read_texts(text)
    profile = options.profile_of(profile, light)
    base = load_baseline(baseline)
    conformal = base.judge(profile).conformal
    check_alpha(conformal, alpha)
    alarm = Alarm.once_in(every, calibrated_by=conformal.counts.tolist())
    with progress_bar("scoring", shown=not quiet) as progress:
        scores = base.score(model, texts, profile=profile, progress=progress)
    levels, rang, _ = alarm.after(alarm.quiet, scores.p_values)
    strange = [number for number, p in enumerate(scores.p_values) if p <= alpha]
    try:
        if json:
            clouds = list(base.judge(profile).layers)
            facts = {"strange": strange, "alarm": rang, "level": float(levels[-1]), "clouds": clouds}
            options.print_json({"texts": [_facts(scores, number) for number in range(len(texts))]} | facts)
        else:
            expected = alpha * len(texts)
            options.say(
                f"{len(strange)} of {len(texts)} texts have p ≤ {alpha:g} (about {expected:.3g} would by chance); "
                + (f"the alarm rings, first at text {rang[0]}." if rang else "the alarm does not ring."),
                hang=0,
            )
            _say(scores, texts, strange)
    finally:
        # The exit code is right even if the reader of the output has gone (… | head).
        if check and rang:
            raise typer.Exit(ANSWER_NO)


def _facts(scores: "Scores", number: int) -> dict[str, Any]:
    return {
        "text": number,
        "score": float(scores.scores[number]),
        "p_value": float(scores.p_values[number]),
        "parts": {name: float(values[number]) for name, values in scores.parts.items()},
        "resultant": {
            name: values[number].tolist()
            for name in ("observed", "expected", "spread")
            if (values := getattr(scores, name)) is not None
        },
        "reasons": [asdict(reason) for reason in scores.reasons[number]],
    }


def _say(scores: "Scores", texts: list[str], strange: list[int]) -> None:
    for number in sorted(strange, key=lambda text: -scores.scores[text])[:SHOWN]:
        begin = texts[number] if len(texts[number]) <= 60 else texts[number][:57] + "…"
        options.say(f"STRANGE text {number}, p = {scores.p_values[number]:.2g}: {begin!r}", hang=8)
        for reason in scores.reasons[number]:
            options.say(f"        {reason}", hang=10)
    if len(strange) > SHOWN:
        options.say(f"        and {len(strange) - SHOWN} more; --json has all.")
