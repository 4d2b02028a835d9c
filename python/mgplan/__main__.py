"""The command line: ``mgplan``, or ``python -m mgplan``. It plans and predicts; commands that train say where they are."""

import os
import signal
import sys

from . import _mgplan


def main() -> int:
    # Ctrl-C and a reader that is gone end it as they end any command; Python would hold these back until the command is done.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    return _mgplan.run_program([os.fsencode(word) for word in sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
