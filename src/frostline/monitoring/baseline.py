"""A baseline: what normal text looks like to one model, learned once from reference texts."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from frostline import __version__
from frostline.encoders.load import Encoder
from frostline.encoders.tokenization import tokenize
from frostline.errors import BadBaseline, BadParameter
from frostline.monitoring.baseline_content import content_hash, content_tensors, judge_headers
from frostline.monitoring.baseline_header import LONGEST_SHORT_NAME, VERSION, brief, is_short_name
from frostline.monitoring.judge import Judge
from frostline.monitoring.learning import Learning
from frostline.monitoring.reasons import Scores
from frostline.monitoring.reference_texts import LONGEST, choose_texts, list_texts
from frostline.monitoring.surface import MOST_TEXTS, learn_surface
from frostline.monitoring.text_model import open_text_model, texts_first, tokenizer_hash
from frostline.printable import printable
from frostline.progress import ProgressFunction
from frostline.results import Result, ability

LEARNED = 0.6
"""Share of the texts that is learned from; the rest calibrates."""


@dataclass(frozen=True, eq=False, repr=False)
class Baseline(Result):
    """Judges of normal text for every level of profile, bound to one model and one tokenizer.

    Parameters
    ----------
    judges
        The detector and its calibration for every level ("full", "light", and "deep" where there is one).
    about
        Facts about the model, the tokenizer and the texts, as the header of the file has them.
    texts
        The reference texts, if they were to be kept: only then can the baseline be merged with others.

    See Also
    --------
    frostline.baseline : makes one.
    frostline.load_baseline : reads one from a file.
    """

    judges: Mapping[str, Judge]
    about: Mapping[str, Any]
    texts: tuple[str, ...] = field(default=())

    @cached_property
    def identity(self) -> str:
        """SHA-256 of all that the baseline holds: the same whoever reads its file, and of no other baseline."""
        # What reading adds to the header of an older file is left out.
        about = {key: value for key, value in self.about.items() if key != "version" and value is not None}
        tensors = content_tensors(self.judges, self.texts)
        return content_hash(tensors, about | {"judges": judge_headers(self.judges)})

    @property
    def name(self) -> str:
        """A short name for people: the one it was given, else the last part of the model's name."""
        name = self.about.get("name") or Path(str(self.about["model"])).name or "baseline"
        return printable(name)[:LONGEST_SHORT_NAME]

    def judge(self, profile: str) -> Judge:
        """The judge of a profile.

        Parameters
        ----------
        profile
            The profile: "full", "light" or "deep".

        Returns
        -------
        Judge
            What scores texts by this profile.

        Raises
        ------
        BadParameter
            The baseline has no such profile.
        """
        if profile not in self.judges:
            raise BadParameter(f"profile is {profile!r}; {self._profiles_in_words()}.")
        return self.judges[profile]

    def _profiles_in_words(self) -> str:
        """The profiles that there are, and why there is no deep one, as the end of a sentence."""
        why = (
            ""
            if "deep" in self.judges
            else (" (a deep one takes a baseline of this version, and an encoder without positions inside attention)")
        )
        return f"of this baseline it is one of {', '.join(self.judges)}{why}"

    def headline(self) -> str:
        """How many texts the baseline was made of, and its model."""
        return f"{self.about.get('texts')} texts, of {self.about.get('model')}"

    def describe(self) -> str:
        """Its name, the model, the texts, the p-values, and the kinds of broken copies that were learned from."""
        family, layers, dimension = self.about["shape"]
        judge = self.judges["full"]
        groups = ", ".join(str(count) for count in judge.conformal.counts.tolist())
        lines = [
            f"A baseline of {self.about['model']} ({family}, {layers} layers, d = {dimension}) from "
            f"{self.about['texts']} texts. Its name is {self.name}, its SHA-256 begins with {self.identity[:12]}.",
            f"Calibrated by {groups} texts, from short to long: p-values go down to {judge.conformal.smallest:.2g}.",
            f"Broken copies it learned from: {', '.join(judge.detector.directions.kinds)}.",
        ]
        if self.texts:
            lines.append(f"It holds the {len(self.texts)} texts themselves: whoever has the file can read them.")
        return "\n".join(lines)

    def facts(self) -> dict[str, Any]:
        """The facts of the header, as ``frostline baseline --inspect --json`` prints them, with name and identity."""
        conformal = self.judges["full"].conformal
        identity = {"name": self.name, "identity": self.identity, "smallest_p_value": conformal.smallest}
        return dict(self.about) | identity | {"calibrated_by": conformal.counts.tolist()}

    def save(self, path: str | Path) -> Path:
        """Write the ``.frost`` file in one atomic step.

        Parameters
        ----------
        path
            The file to write; a file that is there is replaced.

        Returns
        -------
        Path
            The path of the file.
        """
        return ability("Baseline.save")(self, Path(path))

    @texts_first("base.score(model, texts, tokenizer=tokenizer)")
    def score(
        self,
        model: "nn.Module | str | Path",
        texts: Iterable[str],
        *,
        tokenizer: Any = None,
        profile: str = "full",
        level: str | None = None,
        progress: ProgressFunction | None = None,
    ) -> Scores:
        """Score texts with the model that the baseline is of.

        Parameters
        ----------
        model
            The model: a live transformers model, a folder, or an id on the model hub.
        texts
            The texts to score.
        tokenizer
            The model's tokenizer; needed where none is beside the model.
        profile
            The profile of a text, "full", "light" or "deep".
        level
            The old name of ``profile``, which goes in 0.3.
        progress
            Called with a ``Progress`` as the work goes on.

        Returns
        -------
        Scores
            Scores, p-values and reasons, one entry per text.

        Raises
        ------
        BadBaseline
            The baseline is of another model or another tokenizer.
        BadText
            There is no text, or a text has no token.
        """
        texts = list_texts(texts)
        if level is not None:
            says = "score(level=…) is now score(profile=…); the old name goes in 0.3."
            warnings.warn(says, DeprecationWarning, stacklevel=3)
            profile = level
        scorer = ability("Baseline.score")(self, model, tokenizer, profile=profile)
        return scorer.score(scorer.tokenized(texts), progress=progress)

    def check(self, encoder: Encoder, tokenizer: Any = None) -> None:
        """Compare the baseline with a model, and with a tokenizer where one is given.

        Parameters
        ----------
        encoder
            The model.
        tokenizer
            The tokenizer.

        Raises
        ------
        BadBaseline
            The baseline is of another model or another tokenizer.
        """
        shape = [encoder.family.name, encoder.layers, encoder.dimension]
        if shape != self.about["shape"]:
            raise BadBaseline(
                f"the baseline is of {_shape_in_words(self.about['shape'])}, the model is {_shape_in_words(shape)}."
            )
        if encoder.identity() != self.about["model_sha256"]:
            raise BadBaseline(
                "the baseline is of a model with other weights; make one for this model: frostline baseline MODEL"
            )
        if tokenizer is not None and tokenizer_hash(tokenizer) != self.about["tokenizer_sha256"]:
            raise BadBaseline("the tokenizer is not the one the baseline was made with; its p-values mean nothing.")


@texts_first("fl.baseline(model, texts, tokenizer=tokenizer)")
def baseline(
    model: "nn.Module | str | Path",
    texts: Iterable[str],
    *,
    tokenizer: Any = None,
    name: str | None = None,
    keep_texts: bool = False,
    seed: int = 0,
    progress: ProgressFunction | None = None,
) -> Baseline:
    """Learn what normal text looks like to a model; the order of the texts does not matter.

    Parameters
    ----------
    model
        The model: a live transformers model, a folder, or an id on the model hub.
    texts
        Normal texts, at least 500 different ones.
    tokenizer
        The model's tokenizer. It is needed where none is beside the model: in its folder, or for a live model in the
        folder that ``config.name_or_path`` names.
    name
        A short name for people, which events and metrics show; the last part of the model's name by default.
    keep_texts
        Whether the baseline keeps the texts themselves, so that it can be merged with others.
    seed
        Seed of the split into reference and calibration texts, and of the broken copies.
    progress
        Called with a ``Progress`` as the work goes on.

    Returns
    -------
    Baseline
        The baseline; ``save`` writes it to a file, ``score`` scores texts with it.

    Raises
    ------
    BadText
        There are too few different texts, or the model reads no text.
    BadParameter
        A tokenizer is needed, or the name is none.

    Examples
    --------
    >>> base = fl.baseline("path/to/model", normal_texts)  # doctest: +SKIP
    >>> base.save("enc.frost")  # doctest: +SKIP
    """
    check_name(name)
    texts = list_texts(texts)
    encoder, live, tokenizer = open_text_model(model, tokenizer)
    chosen = choose_texts(texts, tokenizer, seed)
    learned = round(LEARNED * len(chosen))
    learning = Learning(encoder, live, tokenizer, chosen[:learned], chosen[learned:], seed=seed, progress=progress)
    return Baseline(
        learning.judges(),
        {
            "version": VERSION,
            "frostline": __version__,
            "model": encoder.name,
            "shape": [encoder.family.name, encoder.layers, encoder.dimension],
            "model_sha256": encoder.identity(),
            # The hash of the files themselves, where there are any, covers embeddings and feed-forward layers too.
            "files_sha256": encoder.fingerprint() if encoder.files else None,
            "tokenizer_sha256": tokenizer_hash(tokenizer),
            "texts": len(chosen),
            "calibration_texts": len(learning.judging["full"]),
            "cut_at_tokens": LONGEST,
            "seed": seed,
            "surface": learn_surface(tokenize(encoder, tokenizer, chosen[:MOST_TEXTS], most=LONGEST).ids, tokenizer),
        }
        | ({} if name is None else {"name": name}),
        tuple(chosen) if keep_texts else (),
    )


def count_calibration_texts(texts: int) -> int:
    """Number of texts that calibrate a baseline of this many texts."""
    return texts - round(LEARNED * texts)


def check_name(name: str | None) -> None:
    """Raise BadParameter unless this can be the name of a baseline."""
    if name is not None and not is_short_name(name):
        raise BadParameter(
            f"the name of a baseline is {brief(name)}; it has 1 to {LONGEST_SHORT_NAME} printable characters."
        )


def _shape_in_words(shape: Sequence[Any]) -> str:
    return f"a {shape[0]} with {shape[1]} layers, d = {shape[2]}"
