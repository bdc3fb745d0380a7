"""Prints the core dependencies at the lowest versions that pyproject.toml allows, as constraints for pip."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
for dependency in project["dependencies"]:
    name, lowest = dependency.split(">=")
    print(f"{name}=={lowest}")
