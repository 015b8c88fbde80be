"""RayExecutor: runs tasks on a cluster of Ray. Needs the extra `ray`.

Ray itself runs in a process beside the worker, the driver: when the cluster is lost, Ray may block or end the
process that is connected to it, which must not be the worker.
"""

from .executor import RayExecutor

__all__ = ["RayExecutor"]
