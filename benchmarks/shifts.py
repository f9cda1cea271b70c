"""Texts that are not like the reference: other domains, attacks, code, other languages."""

import argparse
import csv
import dataclasses
import json
import re
from itertools import product
from pathlib import Path

SHIFTED = 1500
_TEXTS = ("original_text", "perturbed_text")
# Beginnings, middles and ends that may be put together in any way.
LANGUAGES = {
    "German": (
        (
            "Der Film",
            "Die Handlung",
            "Das Drehbuch",
            "Die Musik",
            "Der Regisseur",
            "Die Kamera",
            "Das Ende",
            "Der Held",
        ),
        ("überzeugt von Anfang an", "bleibt leider blass", "ist klug und witzig", "hat keine Seele", "rührt zu Tränen"),
        ("und lässt einen nicht los.", "obwohl man alles schon kennt.", "wie selten in diesem Jahr.", "aber nur kurz."),
    ),
    "French": (
        (
            "Le film",
            "L'intrigue",
            "Le scénario",
            "La musique",
            "Le réalisateur",
            "La mise en scène",
            "La fin",
            "Le héros",
        ),
        (
            "séduit dès le début",
            "reste hélas sans relief",
            "est drôle et intelligent",
            "manque d'âme",
            "émeut aux larmes",
        ),
        ("et ne nous lâche plus.", "même si tout est connu.", "comme rarement cette année.", "mais trop brièvement."),
    ),
    "Spanish": (
        ("La película", "La trama", "El guion", "La música", "El director", "La fotografía", "El final", "El héroe"),
        (
            "convence desde el principio",
            "no tiene alma",
            "es divertida y sabia",
            "conmueve hasta las lágrimas",
            "aburre",
        ),
        ("y no nos suelta.", "aunque todo sea conocido.", "como pocas veces este año.", "pero solo un momento."),
    ),
}


def lines(path: Path) -> list[str]:
    """Texts of a tab-separated file with a header, text last."""
    rows = [line.split("\t", 1)[1].strip() for line in path.read_text(encoding="utf-8").split("\n")[1:] if "\t" in line]
    return [row for row in rows if row]


def attacked(path: Path) -> tuple[list[str], list[str]]:
    """Originals and attacked texts that changed the label, without the marks around changed words."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["result_type"] == "Successful"]
    originals, perturbed = ([re.sub(r"\[\[|\]\]", "", row[name]).strip() for row in rows] for name in _TEXTS)
    return originals, perturbed


def code() -> list[str]:
    """Python source, a few lines at a time, from the standard library."""
    found = []
    for module in (argparse, csv, json, re, dataclasses):
        source = Path(str(module.__file__)).read_text(encoding="utf-8").split("\n")
        found += [
            " ".join(line.strip() for line in source[k : k + 3] if line.strip()) for k in range(0, len(source), 3)
        ]
    return [text for text in found if len(text) > 20][:SHIFTED]


def other_languages() -> list[str]:
    """German, French and Spanish sentences about films: the topic is that of the reference, the language is not."""
    return [" ".join(parts) for own in LANGUAGES.values() for parts in product(*own)]
