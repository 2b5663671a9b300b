"""``python -m bench.channels``."""

from __future__ import annotations

import sys

from bench.channels.run import main

sys.exit(main())
