"""The table of commands: find the one that was typed, run it, and print an error as one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any

import tyro

from certus.cli.flags import flag_names, parse, parser_type, with_flags
from certus.cli.help import command_page, page
from certus.cli.screen import print_any_name
from certus.distributed.launch import joined, launched
from certus.errors import CertusError, Told, UsageError, unexpected, unknown

COMMANDS = {  # each is a module of this package, imported when it is needed
    "train": "Train one classifier.",
    "pretrain": "Train a network without labels, as a start for certus train.",
    "compare": "Train several methods over several seeds and print the table of their errors.",
    "sweep": "Search for the settings of a method that give the lowest validation error.",
    "watch": "Follow runs in a table while they are trained, here or on other machines.",
    "report": "Show runs on one page: tables, curves, certainty, mistakes.",
    "paper": "Repeat the paper's experiments.",
    "evaluate": "Measure how good a run's answers are on test images.",
    "calibrate": "Find when a run may answer, for a wanted share of wrong answers.",
    "predict": "Label pictures with a trained run and say how certain each answer is.",
    "review": "Label pictures in the browser: what is unsure, suspect or certain; then train again.",
    "next": "List the pictures that a person should label next, best first.",
    "suspects": "List the labels that are probably wrong, most suspect first.",
    "export": "Write a run as one file that answers without certus.",
    "serve": "Answer pictures over HTTP: a page for people, JSON for programs.",
    "card": "Print the card of a model: data, errors, certainty, licence, and what it was not tested on.",
    "methods": "List the methods, or explain one.",
    "data": "List the data sets, or download one.",
}
ABOUT = """certus trains an image classifier from a few labels and many unlabelled images, and says how certain it is \
of every answer.

Begin with: certus compare

The flags of a command: certus COMMAND --help"""
HELP = ("-h", "--help")
SHARED = ("train", "pretrain", "evaluate", "predict")  # commands that torchrun may start


def module(command: str) -> Any:
    """The module of a command: its `Options` and its `run(options)`."""
    if command not in COMMANDS:
        raise unknown("command", command, COMMANDS)
    return import_module(f"certus.cli.{command}")


def run(argv: Sequence[str]) -> int:
    """Do what was typed; the exit code."""
    if not argv or argv[0] in HELP:
        page("certus COMMAND [OPTIONS]", ABOUT, {"commands": list(COMMANDS.items())})
        return 0
    if argv[0].startswith("--tyro-"):  # tyro writes a completion script for the shell
        types: dict[str, Any] = {name: parser_type(module(name).Options) for name in COMMANDS}
        return tyro.extras.subcommand_cli_from_dict(types, prog="certus", args=argv)
    command, words = module(argv[0]), [word for word in argv[1:] if word not in HELP]
    options = parse(argv[0], command.Options, words)
    if len(words) < len(argv) - 1:
        more = command.more_flags(options) if hasattr(command, "more_flags") else ()
        command_page(argv[0], command.Options, more)
        return 0
    return command.run(options)


def main(argv: Sequence[str]) -> int:
    """Do what was typed; print an error as a sentence instead of raising it."""
    print_any_name()
    try:
        with joined_for(argv) if launched() else nullcontext():
            return run(argv)
    except Told as e:
        return e.exit_code
    except CertusError as e:
        return say(e, argv[0])
    except KeyboardInterrupt:
        print("certus: stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as e:
        file = f": {e.filename}" if e.filename else ""
        print(f"certus: {e.strerror or e}{file}. What was saved before is kept.", file=sys.stderr)
        return 1
    except Exception as e:  # the last net: no user should see a traceback
        if os.environ.get("CERTUS_TRACEBACK"):
            raise
        return say(unexpected(e), argv[0])


@contextmanager
def joined_for(argv: Sequence[str]) -> Iterator[None]:
    """With the other processes that torchrun has started, for a command that shares its work with them."""
    with joined() as team:
        if argv and argv[0] in COMMANDS and argv[0] not in SHARED:
            raise UsageError(
                f"certus {argv[0]} does not share its work with other processes, so torchrun cannot start it: leave "
                f"torchrun out (it is for {', '.join(SHARED)})."
            )
        with team.guarded():
            yield


def say(error: CertusError, command: str) -> int:
    """Print an error as a sentence; the exit code."""
    print(f"certus: {for_users(str(error), command)}", file=sys.stderr)
    return error.exit_code


def for_users(text: str, command: str) -> str:
    """The text of an error, with the names of settings as flags."""
    if "`" not in text or command not in COMMANDS:
        return text
    return with_flags(text, flag_names(module("train").Options) | flag_names(module(command).Options))
