"""`python -m encore` is the command line, too."""

import sys

from encore.cli import main

sys.exit(main())
