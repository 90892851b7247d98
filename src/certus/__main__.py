"""The door: quick to open, and deaf to nothing while the heavy libraries load."""

from __future__ import annotations

import sys

from certus import __version__


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        print(f"certus {__version__}")
        return
    try:
        from certus.cli import main as cli
    except KeyboardInterrupt:
        print("certus: stopped.", file=sys.stderr)
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
