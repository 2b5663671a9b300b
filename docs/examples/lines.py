"""Many small streams: a hundred topics below ``line/``, ten messages a second on each, to the server that is named."""

import sys
import time

from tocsin.client import Client

with Client(sys.argv[1]) as client:
    while True:
        for line in range(100):
            client.publish(f"line/{line}", 1)
            time.sleep(0.001)
