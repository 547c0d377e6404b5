#!/usr/bin/env python3
"""The Redis port through clients of JavaScript, whose packages come from npm: scripts/soak.sh redis_clients."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import test_redis  # noqa: E402
from leafctl import DEADLINE_S, main  # noqa: E402


class NodeClients(test_redis.ClientRuns):
    LIBRARIES = ("ioredis", "node-redis", "node-redis-3")

    def commands(self):
        folder = os.environ.get("LEAFCTL_TEST_NODE_MODULES", "")
        for name in ("ioredis", "redis"):
            if not os.path.isdir(os.path.join(folder, name)):
                raise AssertionError("LEAFCTL_TEST_NODE_MODULES names no folder with the package %s" % name)
        script = ["env", "NODE_PATH=" + folder, "node", os.path.join(test_redis.CLIENTS, "node_client.js")]
        return {name: [*script, name] for name in self.LIBRARIES}

    def test_ioredis_and_node_redis(self):
        self.run_clients()

    def test_the_manuals_snippets(self):
        self.box.ok("tag", "add", "order")
        daemon = self.serve()
        environment = dict(os.environ, NODE_PATH=os.environ["LEAFCTL_TEST_NODE_MODULES"])
        for number, text in enumerate(test_redis.snippets(daemon.redis, ("ioredis", "node-redis")).values()):
            done = subprocess.run(
                ["node", "-e", text], env=environment, check=False, capture_output=True, text=True, timeout=DEADLINE_S
            )
            self.assertEqual((done.returncode, done.stdout), (0, "%d\n" % (number + 1)), done.stderr)

    def test_ids_that_a_number_of_javascript_does_not_hold(self):
        self.box.ok("tag", "add", "big", "--start", str(2**53 - 10), "--step", "1000")
        daemon = self.serve()
        taken = []
        for name, command in self.commands().items():
            out = self.finish(name, self.start(command, daemon, "big", "exact"))
            self.assertEqual(len(out.split()), self.COUNT, name)
            taken += [int(line) for line in out.split()]
        self.check_distinct(taken)
        self.assertEqual(sorted(taken), list(range(2**53 - 10, 2**53 - 10 + len(taken))))


if __name__ == "__main__":
    main()
