#!/usr/bin/env python3
"""config/kubernetes: read by kubectl, and each part held to the others, to the image, to the program and to the manual. A pod
of it runs in test_image.py."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib

import yaml

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from debs import version  # noqa: E402
from leafctl import ROOT, LeafTest, main  # noqa: E402
from own_namespace import in_own_host_name  # noqa: E402

FOLDER = os.path.join(ROOT, "config", "kubernetes")
# Fields that are newer than the kubectl of Debian 12, which leaves them out.
NEWER = {"sleep"}


def documents(path):
    with open(path, encoding="utf-8") as file:
        return list(yaml.load_all(file, Loader=Strict))


class Strict(yaml.SafeLoader):
    """YAML takes the last of two keys with one name. Nobody means that."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key) for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise yaml.YAMLError("%s: a key stands there twice: %s" % (node.start_mark, keys))
        return super().construct_mapping(node, deep)


def lacking(wanted, found, path=""):
    """What of `wanted` is not in `found`, or is another value there: [path]."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return [path]
        return [
            miss for key, value in wanted.items() if key not in NEWER
            for miss in ([path + "/" + key] if key not in found else lacking(value, found[key], path + "/" + key))
        ]  # fmt: skip
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            return [path]
        return [miss for i, value in enumerate(wanted) for miss in lacking(value, found[i], "%s/%d" % (path, i))]
    return [] if wanted == found else [path]


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(ms|s|m)", text).groups()
    return int(number) * {"ms": 0.001, "s": 1, "m": 60}[unit]


class Kubernetes(LeafTest):
    def setUp(self):
        super().setUp()
        with open(os.path.join(FOLDER, "leafctl.toml"), encoding="utf-8") as file:
            self.toml = file.read()
        self.services = {item["metadata"]["name"]: item for item in documents(os.path.join(FOLDER, "services.yaml"))}
        (self.stateful,) = documents(os.path.join(FOLDER, "statefulset.yaml"))
        (self.budget,) = documents(os.path.join(FOLDER, "poddisruptionbudget.yaml"))
        (self.monitor,) = documents(os.path.join(FOLDER, "servicemonitor.yaml"))
        self.spec = self.stateful["spec"]
        self.template = self.spec["template"]
        self.pod = self.template["spec"]
        (self.container,) = self.pod["containers"]

    def kubectl(self, *args):
        """Its output. It knows of no cluster, and asks none."""
        result = subprocess.run(
            ["kubectl", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            encoding="utf-8", env={**os.environ, "HOME": self.box.home, "KUBECONFIG": "/dev/null"}, check=False,
        )  # fmt: skip
        self.assertEqual(result.returncode, 0, "kubectl %s: %s" % (args, result.stderr))
        return result.stdout

    def setting(self, name):
        return json.loads(self.show("config", "get", name, "--json"))["value"]

    def show(self, *args):
        path = self.box.write("leafctl.toml", self.toml)
        secret = self.box.write("mysql-password", "secret")
        return self.box.ok("--config", path, *args, "--set", "mysql.password_file=" + secret,
                           env={"LEAFCTL_STATE_DIR": None})  # fmt: skip

    def test_kustomize(self):
        made = [item for item in yaml.load_all(self.kubectl("kustomize", FOLDER), Loader=Strict) if item]
        by_kind = {(item["kind"], item["metadata"]["name"].rsplit("-", 1)[0]): item for item in made}
        self.assertEqual(
            sorted((item["kind"]) for item in made),
            ["ConfigMap", "PodDisruptionBudget", "Service", "Service", "StatefulSet"],
        )
        config = by_kind["ConfigMap", "leafctl"]
        self.assertEqual(config["data"], {"leafctl.toml": self.toml})
        # A change of the file is a change of the pods.
        (stateful,) = [item for item in made if item["kind"] == "StatefulSet"]
        volumes = {volume["name"]: volume for volume in stateful["spec"]["template"]["spec"]["volumes"]}
        self.assertEqual(volumes["config"]["configMap"]["name"], config["metadata"]["name"])
        self.assertRegex(config["metadata"]["name"], r"^leafctl-\w{10}$")
        # The one that not every cluster knows is a line away.
        with open(os.path.join(FOLDER, "kustomization.yaml"), encoding="utf-8") as file:
            self.assertIn("# - servicemonitor.yaml", file.read())
        every = os.path.join(self.box.dir, "every")
        shutil.copytree(FOLDER, every)
        path = os.path.join(every, "kustomization.yaml")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace("# - servicemonitor.yaml", "- servicemonitor.yaml"))
        self.assertIn("kind: ServiceMonitor", self.kubectl("kustomize", every))

    def test_memory_is_enough_for_all_connections(self):
        """Otherwise any client could have the pod killed, and each restart costs the reserve."""
        limit = re.fullmatch(r"(\d+)Mi", self.container["resources"]["limits"]["memory"]).group(1)
        self.assertGreaterEqual(int(limit) * 1024, 64 * 1024 + 100 * tomllib.loads(self.toml)["server"]["max_connections"])

    def test_metrics_of_a_pod_keep_their_name(self):
        (endpoint,) = self.monitor["spec"]["endpoints"]
        (relabeling,) = endpoint["relabelings"]
        self.assertEqual(relabeling["targetLabel"], "instance")
        self.assertEqual(relabeling["sourceLabels"], ["__meta_kubernetes_pod_name"])
        host, port = relabeling["replacement"].split(":")
        self.assertEqual(host, "$1." + self.spec["serviceName"])
        self.assertEqual(int(port), self.services[self.spec["serviceName"]]["spec"]["ports"][0]["port"])

    def test_kubectl_knows_every_field(self):
        """kubectl reads into its own types and drops what they do not have; so a field with a wrong name is missing."""
        path = os.path.join(FOLDER, "statefulset.yaml")
        # It prints what it has changed: a file without a change would be no output.
        image = ["set", "image", "--local", "-o", "json", "leafctl=another", "-f"]
        self.container["image"] = "another"
        self.assertEqual(lacking(self.stateful, json.loads(self.kubectl(*image, path))), [])
        with open(path, encoding="utf-8") as file:
            broken = self.box.write("broken.yaml", file.read().replace("serviceName:", "servicName:"))
        self.assertEqual(lacking(self.stateful, json.loads(self.kubectl(*image, broken))), ["/spec/serviceName"])
        for service in self.services.values():
            service["spec"]["selector"] = {"app.kubernetes.io/name": "other"}
            one = self.box.write("service.yaml", yaml.safe_dump(service))
            found = self.kubectl("set", "selector", "--local", "-o", "json", "-f", one, "app.kubernetes.io/name=other")
            self.assertEqual(lacking(service, json.loads(found)), [])

    @in_own_host_name()
    def test_the_configuration_is_good(self):
        socket.sethostname("leafctl-2")
        checked = json.loads(self.show("config", "check", "--json"))
        self.assertEqual((checked["ok"], checked["findings"], checked["worker"]), (True, [], 2))
        (listen,) = self.setting("server.listen")
        (port,) = self.container["ports"]
        self.assertEqual(listen, "0.0.0.0:%d" % port["containerPort"])
        # It is mounted where leafctl looks for it, and its files are in what is mounted.
        mounts = {mount["name"]: mount for mount in self.container["volumeMounts"]}
        self.assertEqual(mounts["config"]["mountPath"], "/etc/leafctl")
        self.assertTrue(self.setting("state_dir").startswith(mounts["state"]["mountPath"] + "/"))
        self.assertIn('password_file = "%s/mysql-password"' % mounts["mysql"]["mountPath"], self.toml)
        with open(os.path.join(FOLDER, "kustomization.yaml"), encoding="utf-8") as file:
            self.assertIn("generic leafctl-mysql --from-file=mysql-password", file.read())
        volumes = {volume["name"]: volume for volume in self.pod["volumes"]}
        self.assertEqual(volumes["mysql"]["secret"]["secretName"], "leafctl-mysql")
        (claim,) = self.spec["volumeClaimTemplates"]
        self.assertEqual(set(mounts), {*volumes, claim["metadata"]["name"]})
        # The drain ends before Kubernetes does.
        before = self.container["lifecycle"]["preStop"]["sleep"]["seconds"]
        self.assertLess(before + seconds(self.setting("server.drain_timeout")) + 5, self.pod["terminationGracePeriodSeconds"])

    @in_own_host_name()
    def test_probes_and_metrics_are_there(self):
        socket.sethostname("leafctl-2")
        daemon = self.box.serve()
        paths = [self.container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
        (endpoint,) = self.monitor["spec"]["endpoints"]
        for path in [*(probe["path"] for probe in paths), endpoint["path"]]:
            self.assertEqual(daemon.get(path).status, 200, path)
        self.assertIn("leaf_", daemon.get(endpoint["path"]).body)
        # A pod that is only not ready is not restarted.
        self.assertEqual([probe["path"] for probe in paths], ["/health/live", "/health/live", "/health/ready"])
        self.assertEqual({probe["port"] for probe in paths}, {"http"})

    def test_names_fit(self):
        label = self.template["metadata"]["labels"]
        selectors = [
            self.spec["selector"]["matchLabels"], self.budget["spec"]["selector"]["matchLabels"],
            *(spread["labelSelector"]["matchLabels"] for spread in self.pod["topologySpreadConstraints"]),
            *(service["spec"]["selector"] for service in self.services.values()),
        ]  # fmt: skip
        self.assertEqual([selector for selector in selectors if not selector.items() <= label.items()], [])
        ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}
        for service in self.services.values():
            for port in service["spec"]["ports"]:
                self.assertEqual(ports[port["targetPort"]], port["port"])
        # Of the pods one by one, and none twice.
        nodes = self.services[self.spec["serviceName"]]
        self.assertEqual(nodes["spec"]["clusterIP"], "None")
        wanted = self.monitor["spec"]["selector"]["matchLabels"]
        watched = [name for name, service in self.services.items() if wanted.items() <= service["metadata"]["labels"].items()]
        self.assertEqual(watched, [self.spec["serviceName"]])
        named = {port["name"] for port in nodes["spec"]["ports"]}
        self.assertLessEqual({endpoint["port"] for endpoint in self.monitor["spec"]["endpoints"]}, named)
        # Up to 1023 the pod's number is a worker number.
        self.assertLess(self.spec["replicas"], 1024)

    def test_rights_and_image(self):
        with open(os.path.join(ROOT, "scripts", "image.py"), encoding="utf-8") as file:
            uid = int(re.search(r"(?m)^UID = (\d+)$", file.read()).group(1))
        rights = self.pod["securityContext"]
        self.assertEqual([rights[name] for name in ("runAsUser", "runAsGroup", "fsGroup")], [uid] * 3)
        self.assertEqual(rights["seccompProfile"], {"type": "RuntimeDefault"})
        own = self.container["securityContext"]
        self.assertEqual((own["allowPrivilegeEscalation"], own["capabilities"]), (False, {"drop": ["ALL"]}))
        self.assertEqual(self.container["image"], "leafctl:" + version())
        # Else the service's name makes variables that look like leafctl's.
        self.assertIs(self.pod["enableServiceLinks"], False)
        self.assertNotIn("hostNetwork", self.pod)

    def test_two_keys_with_one_name_are_found(self):
        with self.assertRaisesRegex(yaml.YAMLError, "twice"):
            yaml.load("spec: {a: 1, a: 2}", Loader=Strict)


if __name__ == "__main__":
    main()
