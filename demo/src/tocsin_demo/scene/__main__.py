"""The process that has some of the subscribers: ``python -m tocsin_demo.scene crowd`` (see ``tocsin_demo.worker``)."""

from tocsin_demo import worker
from tocsin_demo.scene.crowd import Job, play

worker.main({"crowd": (Job, play)})
