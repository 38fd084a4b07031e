"""Build and test a copy of templates/rust as docs/howto/your-stack.md describes it.

    python tools/template_copy.py --no-run        # builds it
    python tools/template_copy.py fq_codel        # runs the tests of that name

The copy is always in the same folder, and its target folder stays, so that a later call reuses the
compiled code.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "template"


def main(words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the lines of the page in a clone, with `words` after `cargo test`."""
    page = (ROOT / "docs" / "howto" / "your-stack.md").read_text()
    [block] = re.findall(r"^```sh\n(cp .*?)^```", page, re.MULTILINE | re.DOTALL)
    copy, add, test = block.strip().splitlines()
    clone = FOLDER / "forebay"
    clone.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(FOLDER / "my-transport", ignore_errors=True)
    for name in ("templates", "crates", "Cargo.toml"):
        (clone / name).unlink(missing_ok=True)
        (clone / name).symlink_to(ROOT / name)
    # The lock file of the checkout makes Cargo use its versions without a registry.
    lock = f"cp '{ROOT}/Cargo.lock' ../my-transport"
    test = test.replace("cargo test", " ".join(["cargo test", *words]))
    return subprocess.run(
        ["sh", "-euc", "\n".join([copy, lock, add, test])],
        cwd=clone,
        env={
            **os.environ,
            "CARGO_NET_OFFLINE": "true",
            "CARGO_TARGET_DIR": str(FOLDER / "target"),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    done = main(sys.argv[1:])
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
