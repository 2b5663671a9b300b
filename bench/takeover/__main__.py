"""``python -m bench.takeover``."""

import sys

from bench.takeover import main

sys.exit(main())
