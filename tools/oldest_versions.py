"""Print the oldest versions that pyproject.toml allows, as constraints for pip: python tools/oldest_versions.py"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def oldest(requirements: list[str]) -> list[str]:
    """``name==version`` of every requirement with a lower end.

    >>> oldest(["numpy>=1.26", "frostline[encoders]", "uvicorn[standard]>=0.29,<2"])
    ['numpy==1.26', 'uvicorn==0.29']
    """
    found = (re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([0-9.]+)", each) for each in requirements)
    return [f"{each[1]}=={each[2]}" for each in found if each]


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [each for extra in project["optional-dependencies"].values() for each in extra]
    print("\n".join(sorted(set(oldest([*project["dependencies"], *extras])))))
