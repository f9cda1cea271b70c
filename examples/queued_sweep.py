"""A sweep whose workers are jobs of a queue: python examples/queued_sweep.py slurm examples/phases.toml OUT 100

Needs dask-jobqueue, which knows other queues, too. With "local" the jobs are processes of this machine: to try it.
"""

import sys

from dask_jobqueue import SLURMCluster
from dask_jobqueue.local import LocalCluster
from distributed import Client

import frostline as fl

QUEUES = {"slurm": SLURMCluster, "local": LocalCluster}
# Workers end by themselves before the queue would end them, each at a time of its own.
LIFETIME = ["--lifetime", "50m", "--lifetime-stagger", "5m"]


def main(queue: str, spec: str, out: str, jobs: int) -> None:
    # One process to a job: only then does dask-jobqueue see that a job has ended, and ask for another.
    job = {"cores": 1, "processes": 1, "memory": "2GB", "walltime": "01:00:00", "worker_extra_args": LIFETIME}
    with QUEUES[queue](**job) as cluster, Client(cluster) as client:
        cluster.adapt(minimum_jobs=jobs, maximum_jobs=jobs)
        print(fl.sweep(spec, out=out, cluster=client))


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
