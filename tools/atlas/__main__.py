"""Write atlas.md and its maps into a folder, from the runs in the store.

python -m tools.atlas docs
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from forebay._native import ScenarioError
from forebay.campaign.study_points import Points
from forebay.experiment import store as stores
from forebay.experiment.store import Designs
from tools.atlas import page

SCENARIO = "studies/atlas"


def main() -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.atlas", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the page goes, and its images/")
    parser.add_argument("--store", help="where the runs are; results/.store by default")
    parser.add_argument("--points", metavar="SAMPLE", help='of fewer points: "sobol 64"')
    arguments = parser.parse_args()
    overrides = [f"sweep.points={arguments.points}"] if arguments.points else []
    try:
        store = stores.existing(arguments.store)
        points = Points(SCENARIO, overrides=overrides, designs=Designs(store))
        written = page.write(points, store, arguments.folder, _command(arguments.points))
    except (ScenarioError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for path in written:
        print(path)
    return 0


def _command(sample: str | None) -> str:
    """Return the command that writes the page."""
    return f'python -m tools.atlas --points "{sample}" docs' if sample else "make atlas"


if __name__ == "__main__":
    sys.exit(main())
