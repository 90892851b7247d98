"""Entry point; handles Ctrl-C while torch imports."""

from __future__ import annotations

import sys

from certus import __version__


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        print(f"certus {__version__}")
        return
    try:
        from certus.cli.main import main as cli

        code = cli(sys.argv[1:])
    except KeyboardInterrupt:
        print("certus: stopped.", file=sys.stderr)
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
