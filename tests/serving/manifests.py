"""What the deployment kit says, read from its files."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
"""Factors of sizes: systemd's letters and those of Kubernetes."""


def objects(name):
    """The objects in a file for Kubernetes, in its order."""
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))


def pods(name):
    """Specifications of the pods in a file for Kubernetes."""
    return [part["spec"]["template"]["spec"] for part in objects(name) if "template" in part["spec"]]


def unit():
    """Settings of the section [Service] of the systemd unit; a list of values for each."""
    values = {}
    lines = (DEPLOY / "frostline.service").read_text().splitlines()
    start = lines.index("[Service]") + 1
    for line in lines[start : lines.index("[Install]")]:
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            values.setdefault(name, []).append(value)
    return values


def size(text):
    """Bytes that a size such as 2G or 1536Mi means."""
    number, letters = re.fullmatch(r"(\d+)([A-Za-z]*)", text).groups()
    return int(number) * UNITS.get(letters, 1)


def stages():
    """Stages of the container file: by name, the stage it is made from and its instructions."""
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    made = {}
    for line in lines:
        if line.startswith("FROM "):
            _, base, _, name = line.split()
            made[name] = (base, [])
        else:
            made[name][1].append(line)
    return made


def packages(stage):
    """Names of the packages that a stage asks pip for, those of the stage it is made from included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base, lines = stages()[stage]
    names = packages(base) if base in stages() else set()

    def required(requirements):
        for requirement in requirements:
            name, extras = re.match(r"([A-Za-z0-9_.-]+)(?:\[(.*?)\])?", requirement).groups()
            if name == "frostline":
                required([one for extra in extras.split(",") for one in project["optional-dependencies"][extra]])
            else:
                names.add(name.lower())

    for line in lines:
        for extras in re.findall(r"pip install .* '?\.(?:\[(.*?)\])?'?(?:\s|$)", line):
            required(project["dependencies"])
            required([f"frostline[{extras}]"] if extras else [])
    return names
