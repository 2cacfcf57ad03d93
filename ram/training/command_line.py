"""What the commands share: reading the command line, reporting errors, printing metrics."""

from __future__ import annotations

import os
import sys
import warnings
from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from envs import errors
from envs.errors import InputError
from ram.training.trainer import TrainingStopped


def positional_arguments(usage: str, description: str) -> list[str]:
    """Returns the arguments of the command line; prints the usage and the description for ``--help``."""
    parser = ArgumentParser(usage=usage, description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("arguments", nargs="*", help=SUPPRESS)
    return parser.parse_args().arguments


def assignments(arguments: list[str]) -> dict[str, str]:
    """Parses command-line arguments of the form name=value. Raises :class:`InputError` for any other."""
    for argument in arguments:
        if "=" not in argument:
            raise InputError(f"{argument} is not of the form name=value.")
    return {name: value for name, _, value in (argument.partition("=") for argument in arguments)}


def import_from_current_folder() -> None:
    """Makes the modules of the current folder importable, so that ``_target_`` can name the user's own classes."""
    sys.path.insert(0, str(Path.cwd()))


def format_metrics(values: Mapping[str, object]) -> str:
    """Formats names and values in two columns."""
    texts = {name: f"{value:.2f}" if isinstance(value, float) else str(value) for name, value in values.items()}
    left, right = max(map(len, texts)), max(map(len, texts.values()))
    return "\n".join(f"  {name:<{left}}  {text:>{right}}" for name, text in texts.items())


@contextmanager
def report_errors() -> Iterator[None]:
    """Ends the program with one sentence and status 1 on a user's mistake; any other error keeps its traceback.

    A warning from this project is printed without the line of code that Python shows.
    """
    default, project = warnings.formatwarning, [Path(__file__).parents[1], Path(errors.__file__).parent]

    def format_warning(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if any(Path(filename).is_relative_to(folder) for folder in project):
            return f"Warning: {message}\n"
        return default(message, category, filename, lineno, line)

    warnings.formatwarning = format_warning
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has closed it, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (InputError, TrainingStopped) as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit("Error: Interrupted.")
    finally:
        warnings.formatwarning = default
