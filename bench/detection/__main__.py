"""``python -m bench.detection``."""

import sys

from bench.detection import main

sys.exit(main())
