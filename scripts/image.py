#!/usr/bin/env python3
"""Puts an installed leafctl and the libraries that it needs into a container image, an archive of the OCI layout that
`docker load` reads as well. Needs no container engine and no network: the libraries are those of Debian packages that are
installed here, each file compared with the checksum its package has for it.

Usage: image.py ROOT SBOM VERSION ARCHIVE

ROOT is what `cmake --install --prefix /usr` wrote. The same input gives the same bytes (SOURCE_DATE_EPOCH, else 1970).
"""

import datetime
import glob
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile

UID = 10001
STATE = "/var/lib/leafctl"
PORT = 8080
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH") or 0)
HOMEPAGE = "https://github.com/leafctl/leafctl"
# /bin/X of a package and /usr/bin/X are one file.
MERGED = ("bin", "lib", "lib64", "sbin")
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"


def output(*command):
    # What is loaded into every program here is none of the image's.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, encoding="utf-8", env=environment).stdout


def fail(message):
    sys.exit("image.py: " + message)


class Root:
    """The files of the image by their path, without the / in front."""

    def __init__(self):
        self.entries = {}

    def add(self, path, kind, mode, content=b"", link="", owner=0):
        path = path.strip("/")
        parent = os.path.dirname(path)
        if parent and parent not in self.entries:
            self.folder(parent)
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.linkname, info.size = kind, mode, link, len(content)
        info.uid = info.gid = owner
        info.mtime = EPOCH
        self.entries[path] = (info, content)

    def folder(self, path, mode=0o755, owner=0):
        self.add(path, tarfile.DIRTYPE, mode, owner=owner)

    def link(self, path, target):
        self.add(path, tarfile.SYMTYPE, 0o777, link=target)

    def file(self, path, content, mode=0o644):
        self.add(path, tarfile.REGTYPE, mode, content)

    def tar(self):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for _, (info, content) in sorted(self.entries.items()):
                archive.addfile(info, io.BytesIO(content))
        return stream.getvalue()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def merged(path):
    """Where a file of a package is on a Debian whose /lib is /usr/lib."""
    return "/usr" + path if path.split("/")[1] in MERGED else path


class Package:
    """An installed package of Debian, of which some files are wanted."""

    def __init__(self, name):
        self.name = name
        self.sums = {}
        for base in glob.glob("/var/lib/dpkg/info/%s.md5sums" % name) + glob.glob(
            "/var/lib/dpkg/info/%s.md5sums" % name.split(":")[0]
        ):
            for line in read(base).decode().splitlines():
                digest, path = line.split(None, 1)
                self.sums[merged("/" + path)] = digest
        if not self.sums:
            fail("the package %s has no checksums here" % name)

    def content(self, path):
        content = read(path)
        if self.sums.get(path) != hashlib.md5(content).hexdigest():
            fail("%s is not as its package %s has it: reinstall the package" % (path, self.name))
        return content

    def status(self):
        """Its paragraph for dpkg's list, which scanners read. The image has a part of the files, so there are no
        dependencies."""
        fields = "Package Status Priority Section Maintainer Architecture Multi-Arch Source Version Homepage".split()
        text = output("dpkg-query", "--status", self.name)
        kept = [line for line in text.splitlines() if line.split(":")[0] in fields]
        summary = re.search(r"^Description: .*", text, re.MULTILINE).group()
        return "\n".join([*kept, summary]) + "\n"


def owner_of(path):
    """The package of a file, which dpkg may know by its old place."""
    for known in (merged(path), merged(path).removeprefix("/usr")):
        found = subprocess.run(
            ["dpkg-query", "--search", known], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
            encoding="utf-8",
        )  # fmt: skip
        if found.returncode == 0:
            return found.stdout.splitlines()[0].rsplit(": ", 1)[0].split(",")[0]
    return fail("no package of Debian has %s" % path)


def libraries(*programs):
    """The shared libraries of programs, with those that these need: by the name under which they are looked for."""
    found = {}
    for program in programs:
        for line in output("ldd", program).splitlines():
            if "not found" in line:
                fail("%s: %s" % (program, line.strip()))
            match = re.match(r"\s*(?:\S+ => )?(/\S+) \(", line)
            if match:
                found[match.group(1)] = os.path.realpath(match.group(1))
    return found


def add_libraries(root, binary):
    """The binary's libraries, those that it opens: MySQL's client with its ways to log in, and OpenSSL. The packages they
    are from."""
    client = merged(library_by_name("libmariadb.so.3"))
    plugins = sorted(glob.glob(os.path.join(os.path.dirname(client), "libmariadb3", "plugin", "*.so")))
    if not plugins:
        fail("libmariadb3 has no plugins beside %s" % client)
    tls = merged(library_by_name("libssl.so.3"))
    wanted = {path: os.path.realpath(path) for path in (client, tls)}
    wanted.update({path: path for path in plugins})
    wanted.update(libraries(binary, client, tls, *plugins))
    packages = {}
    for asked, real in sorted(wanted.items()):
        name = owner_of(real)
        package = packages.setdefault(name, Package(name))
        root.file(merged(real), package.content(merged(real)), 0o755 if os.access(real, os.X_OK) else 0o644)
        if merged(asked) != merged(real):
            root.link(merged(asked), os.path.relpath(merged(real), os.path.dirname(merged(asked))))
    return packages


def library_by_name(name):
    for line in output("/sbin/ldconfig", "-p").splitlines():
        match = re.match(r"\s*%s \(libc6,(?:x86-64|AArch64)[^)]*\) => (\S+)" % re.escape(name), line)
        if match:
            return match.group(1)
    return fail("%s is not installed: apt-get install libmariadb3 libssl-dev" % name)


def make_root(installed, sbom, version):
    root = Root()
    for name in MERGED:
        root.folder("usr/" + name)
        root.link(name, "usr/" + name)
    root.folder("tmp", 0o1777)
    root.folder(STATE, 0o750, UID)
    binary = os.path.join(installed, "usr/bin/leafctl")
    root.file("usr/bin/leafctl", read(binary), 0o755)
    for path in ("usr/share/doc/leafctl/copyright", "usr/share/doc/leafctl/copyright.libraries.gz"):
        root.file(path, read(os.path.join(installed, path)))
    root.file("usr/share/doc/leafctl/sbom.spdx.json", read(sbom))
    # No key is set: what is not in a user's file comes from the variables of the image.
    root.file("etc/leafctl/leafctl.toml", read(os.path.join(installed, "etc/leafctl/leafctl.toml")))

    packages = add_libraries(root, binary)
    # For mysql.tls = "verify" without mysql.tls_ca.
    authorities = Package("ca-certificates")
    bundle = b"".join(
        authorities.content(path) for path in sorted(authorities.sums) if path.startswith("/usr/share/ca-certificates/mozilla/")
    )
    root.file(AUTHORITIES, bundle)
    root.link("usr/lib/ssl/cert.pem", AUTHORITIES)
    root.link("usr/lib/ssl/certs", os.path.dirname(AUTHORITIES))
    packages["ca-certificates"] = authorities
    base = Package("base-files")
    root.file("usr/lib/os-release", base.content("/usr/lib/os-release"))
    root.link("etc/os-release", "../usr/lib/os-release")
    packages["base-files"] = base

    status = []
    for name, package in sorted(packages.items()):
        status.append(package.status())
        path = "/usr/share/doc/%s/copyright" % name.split(":")[0]
        root.file(path, read(path))
    root.file("var/lib/dpkg/status", "\n".join(status).encode())
    root.file("etc/passwd", b"root:x:0:0:root:/root:/usr/sbin/nologin\nleafctl:x:%d:%d:leafctl:%s:/usr/sbin/nologin\n" % (
        UID, UID, STATE.encode()))  # fmt: skip
    root.file("etc/group", b"root:x:0:\nleafctl:x:%d:\n" % UID)
    root.file("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
    return root


def make_config(version, layer, revision):
    created = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": "leafctl",
        "org.opencontainers.image.description": "distributed ID service, compatible with Meituan's Leaf",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.url": HOMEPAGE,
        "org.opencontainers.image.source": HOMEPAGE,
        "org.opencontainers.image.documentation": HOMEPAGE + "/blob/main/doc/operating.md",
    }
    if revision:
        labels["org.opencontainers.image.revision"] = revision
    architecture = output("dpkg", "--print-architecture").strip()
    seconds = 1_000_000_000
    return {
        "created": created,
        "architecture": architecture,
        **({"variant": "v8"} if architecture == "arm64" else {}),
        "os": "linux",
        "config": {
            "User": "%d:%d" % (UID, UID),
            "ExposedPorts": {"%d/tcp" % PORT: {}},
            "Env": [
                "PATH=/usr/bin:/bin",
                # Below the file: a user's own file and variables go before.
                "LEAFCTL_LISTEN_DEFAULT=:%d" % PORT,
                "STATE_DIRECTORY=" + STATE,
            ],
            "Entrypoint": ["/usr/bin/leafctl"],
            "Cmd": ["serve"],
            "Volumes": {STATE: {}},
            "WorkingDir": STATE,
            "Labels": labels,
            "StopSignal": "SIGTERM",
            # No field of OCI's: Docker honours it, and podman where it has the image in Docker's format.
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/leafctl", "status", "--live", "--quiet"],
                "Interval": 10 * seconds,
                "Timeout": 5 * seconds,
                "StartPeriod": 30 * seconds,
                "Retries": 3,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        "history": [{"created": created, "created_by": "scripts/image.sh", "comment": "leafctl " + version}],
    }


class Archive:
    """The blobs of an image."""

    def __init__(self):
        self.files = {}

    def blob(self, content, media_type, **more):
        digest = hashlib.sha256(content).hexdigest()
        self.files["blobs/sha256/" + digest] = content
        return {"mediaType": media_type, "digest": "sha256:" + digest, "size": len(content), **more}

    def json(self, name, value):
        self.files[name] = dump(value)

    def write(self, path):
        root = Root()
        for name, content in self.files.items():
            root.file(name, content)
        with open(path, "wb") as file:
            file.write(root.tar())


def dump(value):
    return json.dumps(value, indent=1).encode() + b"\n"


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    installed, sbom, version, path = sys.argv[1:]
    layer = make_root(installed, sbom, version).tar()
    packed = gzip.compress(layer, 9, mtime=0)
    config = make_config(version, layer, os.environ.get("LEAF_IMAGE_REVISION", ""))
    oci = "application/vnd.oci.image."
    archive = Archive()
    layers = [archive.blob(packed, oci + "layer.v1.tar+gzip")]
    described = archive.blob(dump(config), oci + "config.v1+json")
    manifest = {
        "schemaVersion": 2,
        "mediaType": oci + "manifest.v1+json",
        "config": described,
        "layers": layers,
        "annotations": config["config"]["Labels"],
    }
    name = "leafctl:" + version
    platform = {key: config[key] for key in ("architecture", "os", "variant") if key in config}
    entry = archive.blob(
        dump(manifest), manifest["mediaType"], platform=platform,
        annotations={"org.opencontainers.image.ref.name": name, "io.containerd.image.name": "docker.io/library/" + name},
    )  # fmt: skip
    archive.json("oci-layout", {"imageLayoutVersion": "1.0.0"})
    archive.json("index.json", {"schemaVersion": 2, "mediaType": oci + "index.v1+json", "manifests": [entry]})
    # What `docker load` before version 25 looks for.
    place = "blobs/sha256/%s"
    archive.json("manifest.json", [{
        "Config": place % described["digest"][len("sha256:"):],
        "RepoTags": [name],
        "Layers": [place % one["digest"][len("sha256:"):] for one in layers],
    }])  # fmt: skip
    archive.write(path)
    print("%s: %s, %.1f MB compressed, %.1f MB unpacked" % (path, name, len(packed) / 1e6, len(layer) / 1e6))


if __name__ == "__main__":
    main()
