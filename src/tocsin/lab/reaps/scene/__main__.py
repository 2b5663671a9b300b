"""The process that has some of the subscribers: ``python -m tocsin.lab.reaps.scene crowd`` (see ``lab.worker``)."""

from tocsin.lab import worker
from tocsin.lab.reaps.scene.crowd import Job, play

worker.main({"crowd": (Job, play)})
