#!/usr/bin/env python3
"""The container image: made twice, read, and run with crun; and a pod as config/kubernetes describes it. Needs to be root,
and becomes it with sudo.

Environment: LEAFCTL_BUILD_DIR  the build (default build/release)
"""

import gzip
import hashlib
import http.client
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest

import yaml

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from containers import Container, Image, enter  # noqa: E402
from debs import BUILD, version  # noqa: E402
from leafctl import ROOT, main, poll  # noqa: E402
from own_namespace import ELSEWHERE  # noqa: E402
from servers import PASSWORD, MariaDb  # noqa: E402

KUBERNETES = os.path.join(ROOT, "config", "kubernetes")
UID = 10001
STATE = "/var/lib/leafctl"
PORT = 8080


def make_image(folder, **env):
    os.mkdir(folder)
    made = subprocess.run(
        [os.path.join(ROOT, "scripts", "image.sh"), BUILD, folder], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, encoding="utf-8", env={**os.environ, **env}, check=False,
    )  # fmt: skip
    if made.returncode != 0:
        raise AssertionError("image.sh failed:\n" + made.stdout)
    (name,) = os.listdir(folder)
    return os.path.join(folder, name)


def setUpModule():
    global FOLDER, ARCHIVE, IMAGE, UNPACKED
    FOLDER = tempfile.TemporaryDirectory(prefix="leafctl-image-")
    unittest.addModuleCleanup(FOLDER.cleanup)
    # The container's user has to get through.
    os.chmod(FOLDER.name, 0o755)
    ARCHIVE = make_image(os.path.join(FOLDER.name, "first"))
    IMAGE = Image(ARCHIVE)
    UNPACKED = os.path.join(FOLDER.name, "root")
    os.mkdir(UNPACKED)
    for layer in IMAGE.layers:
        with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
            archive.extractall(UNPACKED, numeric_owner=True)


def members():
    found = {}
    for layer in IMAGE.layers:
        with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
            found.update({member.name: member for member in archive})
    return found


class Archive(unittest.TestCase):
    maxDiff = None

    def test_the_same_bytes_twice(self):
        old = os.umask(0o077)
        try:
            again = make_image(os.path.join(FOLDER.name, "again"), TZ="Asia/Shanghai", LC_ALL="C", HOME="/nonexistent")
        finally:
            os.umask(old)
        with open(ARCHIVE, "rb") as first, open(again, "rb") as second:
            self.assertEqual(hashlib.sha256(first.read()).digest(), hashlib.sha256(second.read()).digest())

    def test_it_is_what_engines_expect(self):
        self.assertEqual(json.loads(IMAGE.files["oci-layout"]), {"imageLayoutVersion": "1.0.0"})
        for name, content in IMAGE.files.items():
            if name.startswith("blobs/"):
                self.assertEqual(name, "blobs/sha256/" + hashlib.sha256(content).hexdigest())
        self.assertEqual(
            IMAGE.config["rootfs"]["diff_ids"],
            ["sha256:" + hashlib.sha256(gzip.decompress(layer)).hexdigest() for layer in IMAGE.layers],
        )
        # The older form of `docker save` names the same files.
        (old,) = json.loads(IMAGE.files["manifest.json"])
        self.assertEqual(old["RepoTags"], ["leafctl:" + version()])
        self.assertEqual(old["Config"].rsplit("/", 1)[1], IMAGE.manifest["config"]["digest"].split(":")[1])
        self.assertEqual([path for path in old["Layers"] if path not in IMAGE.files], [])
        labels = IMAGE.config["config"]["Labels"]
        self.assertEqual(labels["org.opencontainers.image.version"], version())
        for name in ("title", "description", "created", "licenses", "source"):
            self.assertTrue(labels["org.opencontainers.image." + name], name)
        machine = subprocess.run(["dpkg", "--print-architecture"], stdout=subprocess.PIPE, check=True, encoding="utf-8")
        self.assertEqual(IMAGE.config["architecture"], machine.stdout.strip())
        self.assertLess(os.path.getsize(ARCHIVE), 40_000_000)

    def test_only_what_is_needed_is_in_it(self):
        found = members()
        programs = [name for name, member in found.items() if member.isfile() and "bin/" in name]
        self.assertEqual(programs, ["usr/bin/leafctl"], "no shell")
        self.assertEqual([name for name, member in found.items() if member.mode & 0o6000], [])
        # A volume that is made for it belongs to the user.
        others = {name: (member.uid, member.gid, member.mode) for name, member in found.items() if member.uid or member.gid}
        self.assertEqual(others, {STATE[1:]: (UID, UID, 0o750)})
        self.assertEqual(
            [name for name, member in found.items() if member.mode & 0o002 and not member.issym()], ["tmp"]
        )
        # Scanners learn of each package that something is from, with its version.
        with open(os.path.join(UNPACKED, "var/lib/dpkg/status"), encoding="utf-8") as file:
            listed = dict(re.findall(r"(?m)^Package: (\S+)\n(?:\S.*\n)*?Version: (\S+)$", file.read()))
        # Debian 13 has another name for OpenSSL, which needs one library more there.
        names = {name.removesuffix("t64") for name in listed} - {"libzstd1"}
        self.assertEqual(names, {"base-files", "ca-certificates", "libc6", "libmariadb3", "libssl3", "zlib1g"})
        for package, number in listed.items():
            shown = subprocess.run(
                ["dpkg-query", "-W", "-f", "${Version}", package], stdout=subprocess.PIPE, check=True, encoding="utf-8"
            )
            self.assertEqual(shown.stdout, number, package)
            self.assertIn("usr/share/doc/%s/copyright" % package, found)
        with open(os.path.join(UNPACKED, "usr/share/doc/leafctl/sbom.spdx.json"), encoding="utf-8") as file:
            linked = {package["name"]: package for package in json.load(file)["packages"]}
        self.assertIn("libzookeeper-mt-dev", linked)
        with open(os.path.join(UNPACKED, "etc/ssl/certs/ca-certificates.crt"), encoding="utf-8") as file:
            self.assertGreater(file.read().count("BEGIN CERTIFICATE"), 100)


class Running(unittest.TestCase):
    maxDiff = None

    def folder(self, owner=UID, group=UID, mode=0o750):
        """A volume: as engines make one of the image's folder."""
        made = tempfile.mkdtemp(prefix="volume-", dir=FOLDER.name)
        os.chown(made, owner, group)
        os.chmod(made, mode)
        return made

    def file(self, text, mode=0o644, owner=0, group=0):
        handle, path = tempfile.mkstemp(prefix="file-", dir=FOLDER.name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chown(path, owner, group)
        os.chmod(path, mode)
        return path

    def container(self, *args, volume=None, mounts=(), **more):
        mounts = [*([(volume, STATE, False)] if volume else []), *mounts]
        made = Container(IMAGE, UNPACKED, args=args or None, mounts=mounts, **more)
        self.addCleanup(made.close)
        return made

    def get(self, path, host=ELSEWHERE, port=PORT):
        connection = http.client.HTTPConnection(host, port, timeout=60)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def wait_answers(self, container, path="/health/ready"):
        def look():
            if not container.running():
                raise AssertionError("the container ended:\n" + container.read_log())
            try:
                return self.get(path)[0] == 200
            except OSError:
                return False

        poll(look, "an answer 200 of %s" % path)

    def healthcheck(self):
        kind, *command = IMAGE.config["config"]["Healthcheck"]["Test"]
        self.assertEqual(kind, "CMD")
        return command

    def ids(self, path):
        status, body = self.get(path)
        self.assertEqual(status, 200, body)
        return [int(text) for text in json.loads(body)["ids"]]

    def test_a_life_with_a_volume(self):
        volume = self.folder()
        first = self.container(volume=volume).start()
        self.wait_answers(first)
        added = first.exec("/usr/bin/leafctl", "tag", "add", "order")
        self.assertEqual(added.rc, 0, added.err)
        seen = self.ids("/v1/segment/order?count=5000")
        with open("/proc/%d/status" % first.pid(), encoding="utf-8") as file:
            status = file.read()
        self.assertRegex(status, r"Uid:\s+%d\s+%d\s" % (UID, UID))
        self.assertRegex(status, r"Gid:\s+%d\s+%d\s" % (UID, UID))
        self.assertRegex(status, r"CapEff:\s+0+\n")
        check = first.exec(*self.healthcheck())
        self.assertEqual(tuple(check), (0, "", ""))
        self.assertIn("listening on http://0.0.0.0:%d" % PORT, first.read_log())
        self.assertEqual(first.stop(), 0, first.read_log())
        self.assertIn("stopped", first.read_log())
        for folder, _, names in os.walk(volume):
            for name in names:
                self.assertEqual(os.lstat(os.path.join(folder, name)).st_uid, UID, name)

        # With no daemon the health check fails, with the code that the manual has for it.
        down = self.container(*self.healthcheck()[1:], volume=volume).run()
        self.assertEqual(down.rc, 7, down)
        # A command that finds no daemon takes from the store in the volume, as it does without a configuration elsewhere.
        taken = self.container("next", "order", volume=volume).run()
        self.assertEqual((taken.rc, taken.err), (0, ""))
        seen.append(int(taken.out))
        # Another container with the volume goes on, after a crash as well.
        second = self.container(volume=volume).start()
        self.wait_answers(second)
        seen += self.ids("/v1/segment/order?count=5000")
        second.kill()
        third = self.container(volume=volume).start()
        self.wait_answers(third)
        seen += self.ids("/v1/segment/order?count=5000")
        self.assertEqual(seen, sorted(set(seen)), "an ID repeats")
        self.assertEqual(third.stop(), 0)

    def test_file_and_variables(self):
        path = self.file('[server]\nlisten = [":18081"]\n[segment]\nmax_tags = 5\n')
        mounts = [(path, "/etc/leafctl/leafctl.toml", True)]
        env = {"LEAFCTL_SEGMENT_MAX_TAGS": "7"}
        shown = self.container("config", "show", "--origin", volume=self.folder(), mounts=mounts, env=env).run()
        self.assertEqual(shown.rc, 0, shown.err)
        # A user's file goes before the image's defaults, and variables before the file.
        self.assertRegex(shown.out, r'(?m)^listen = \["0.0.0.0:18081"\] +# /etc/leafctl/leafctl.toml:2$')
        self.assertRegex(shown.out, r"(?m)^max_tags = 7 +# \$LEAFCTL_SEGMENT_MAX_TAGS$")
        self.assertRegex(shown.out, r'(?m)^state_dir = "/var/lib/leafctl" ')
        shown = self.container("config", "show", "--origin", volume=self.folder()).run()
        self.assertRegex(shown.out, r'(?m)^listen = \["0.0.0.0:8080"\] +# \$LEAFCTL_LISTEN_DEFAULT$')
        # Where a file does not say where to listen, the container is reached all the same.
        served = self.container(
            volume=self.folder(), mounts=[(self.file("[segment]\nmax_tags = 5\n"), "/etc/leafctl/leafctl.toml", True)]
        ).start()
        self.wait_answers(served)
        self.assertEqual(served.stop(), 0)
        # The health check finds the daemon without a Unix socket as well.
        env = {"LEAFCTL_SERVER_SOCKET": "", "LEAFCTL_SERVER_LISTEN": ":18082"}
        served = self.container(volume=self.folder(), env=env).start()
        poll(lambda: served.exec(*self.healthcheck()).rc == 0, "a health check that succeeds")
        self.assertEqual(served.stop(), 0)

    def test_a_number_from_the_host_name(self):
        env = {"LEAFCTL_SNOWFLAKE_CLUSTER": "pay", "LEAFCTL_SNOWFLAKE_WORKER_ID": "ordinal"}
        volume = self.folder()
        container = self.container(volume=volume, env=env, hostname="leafctl-5").start()
        self.wait_answers(container)
        self.assertEqual({value >> 12 & 1023 for value in self.ids("/v1/snowflake?count=100")}, {5})
        self.assertEqual(container.stop(), 0)
        refused = self.container(volume=volume, env=env, hostname="3f2a9c1b7d04").run()
        self.assertEqual(refused.rc, 6, refused)
        self.assertIn("the host name '3f2a9c1b7d04' does not end with a dash and a number", refused.err)

    def test_zookeeper_is_in_it(self):
        settings = ["snowflake.registry=zookeeper", "snowflake.cluster=pay", "zookeeper.connect=127.0.0.1:1"]
        args = [part for setting in settings for part in ("--set", setting)]
        asked = self.container("worker", "list", "--timeout", "1s", *args, volume=self.folder()).run()
        self.assertEqual(asked.rc, 8, asked)
        self.assertIn("ZooKeeper at 127.0.0.1:1 does not answer", asked.err)

    def test_a_pod_with_mysql(self):
        """The StatefulSet's pod, with what it mounts made as kubelet makes it."""
        with open(os.path.join(KUBERNETES, "statefulset.yaml"), encoding="utf-8") as file:
            stateful = yaml.safe_load(file)
        pod = stateful["spec"]["template"]["spec"]
        (described,) = pod["containers"]
        rights = pod["securityContext"]
        self.assertTrue(rights["runAsNonRoot"] and described["securityContext"]["readOnlyRootFilesystem"])
        group = rights["fsGroup"]
        database = MariaDb()
        self.addCleanup(database.close)
        secret, config = self.folder(0, group, 0o2755), self.folder(0, group, 0o2755)
        os.rename(self.file(PASSWORD, 0o440, 0, group), os.path.join(secret, "mysql-password"))
        with open(os.path.join(KUBERNETES, "leafctl.toml"), encoding="utf-8") as file:
            os.rename(self.file(file.read(), 0o644, 0, group), os.path.join(config, "leafctl.toml"))
        # Some provisioners let everyone write to a volume.
        sources = {"config": config, "mysql": secret, "state": self.folder(0, group, 0o2777)}
        mounts = [(sources[one["name"]], one["mountPath"], one.get("readOnly", False)) for one in described["volumeMounts"]]
        # Only the server has another address here than in a cluster.
        env = {"LEAFCTL_MYSQL_ENDPOINTS": "127.0.0.1:%d" % database.port}
        settings = {"mounts": mounts, "env": env, "user": "%d:%d" % (rights["runAsUser"], rights["runAsGroup"]), "hostname": "leafctl-2"}
        made = self.container("db", "init", **settings).run()
        self.assertEqual(made.rc, 0, made)
        self.assertEqual(self.container("tag", "add", "order", **settings).run().rc, 0)
        # Without its database a pod is alive and not ready: it gets no requests, and is not started anew.
        database.freeze()
        served = self.container(**settings).start()
        for probe in ("startupProbe", "livenessProbe"):
            self.wait_answers(served, described[probe]["httpGet"]["path"])
        self.assertEqual(self.get(described["readinessProbe"]["httpGet"]["path"])[0], 503)
        self.assertEqual(served.exec(*self.healthcheck()), (0, "", ""))
        self.assertEqual(served.exec("/usr/bin/leafctl", "status").rc, 10)
        database.thaw()
        self.wait_answers(served, described["readinessProbe"]["httpGet"]["path"])
        seen = self.ids("/v1/segment/order?count=10")
        self.assertEqual(len(set(seen)), 10)
        self.assertEqual({value >> 12 & 1023 for value in self.ids("/v1/snowflake?count=10")}, {2})
        self.assertEqual(served.stop(), 0)
        # What strangers may read stays refused.
        os.chmod(os.path.join(secret, "mysql-password"), 0o444)
        self.assertIn("gives other users access", self.container("tag", "list", **settings).run().err)


if __name__ == "__main__":
    enter(keep=("LEAFCTL", "LEAFCTL_BUILD_DIR", "LEAFCTL_TEST_SEED", "LEAFCTL_TEST_SCALE"))
    main()
