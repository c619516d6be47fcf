"""Start a node in one of the scenes and keep it up: its URL is printed, Ctrl-C or SIGTERM ends it.

python tests/support/browser/scene.py busy --port 0
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.browser.scenes import SCENES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", choices=SCENES)
    parser.add_argument("--port", type=int, default=0, help="of HTTP; 0 is any free one")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="logboom-scene-") as directory,
        SCENES[arguments.scene](Path(directory), arguments.port) as scene,
    ):
        print(scene.url, flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
