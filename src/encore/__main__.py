"""The command `encore`, and `python -m encore`: the command line, with a quiet end however it is stopped."""

import signal
import sys

from encore.processor import prepare_environment


def run_command() -> int:
    """Answer the command line, from the first import to the exit status."""
    prepare_environment()
    try:
        from encore.cli import main

        status = main()
    except KeyboardInterrupt:
        status = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left to do is Python's own tidying up
    return status


if __name__ == "__main__":
    sys.exit(run_command())
