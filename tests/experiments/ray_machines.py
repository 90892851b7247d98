"""A Ray cluster of two machines on this one: prints its address and the second machine, which a line of input kills."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ray.cluster_utils import Cluster

EACH = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "node_ip_address": "127.0.0.1"}


def started(folder: str) -> Iterator[Any]:
    """Ray gives a machine 30 seconds to start, which a busy one may need more than once."""
    cluster = Cluster()
    for settings in ({"include_dashboard": False, "temp_dir": folder}, {}):
        for left in reversed(range(4)):
            try:
                yield cluster, cluster.add_node(**EACH, **settings)
                break
            except Exception:
                if not left:
                    raise


if __name__ == "__main__":
    machines = list(started(sys.argv[1]))
    cluster, second = machines[-1]
    print(cluster.address, second.node_id, flush=True)
    for _ in sys.stdin:
        cluster.remove_node(second, allow_graceful=False)
        print("killed", flush=True)
    with suppress(Exception):
        cluster.shutdown()
