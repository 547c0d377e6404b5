"""The Debian packages of a build, made anew.

Environment: LEAFCTL_BUILD_DIR  the build (default build/release)
"""

import os

from bare_root import command, suite
from leafctl import ROOT

BUILD = os.path.abspath(os.environ.get("LEAFCTL_BUILD_DIR") or os.path.join(ROOT, "build", "release"))
# The bare root that they are installed in, kept for the next run.
BASE = os.path.join(BUILD, "packages-base-%s.tar" % suite())


def version():
    with open(os.path.join(BUILD, "CPackConfig.cmake"), encoding="utf-8") as file:
        return next(line for line in file if "CPACK_PACKAGE_VERSION " in line).split('"')[1]


def revision(as_version):
    """A version as the packages have it: with the Debian that they are for."""
    with open("/etc/os-release", encoding="utf-8") as file:
        release = next(line for line in file if line.startswith("VERSION_ID=")).split("=")[1].strip().strip('"')
    return "%s-1~deb%s" % (as_version, release)


def make_debs(folder, as_version):
    """The packages as this version, in a folder that is made: leafctl's, libleaf-dev's."""
    os.mkdir(folder)
    command(["cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", folder, "-R", as_version])
    debs = sorted(os.path.join(folder, deb) for deb in os.listdir(folder) if deb.endswith(".deb"))
    names = [os.path.basename(deb).split("_")[0:2] for deb in debs]
    if names != [[name, revision(as_version)] for name in ("leafctl", "libleaf-dev")]:
        raise AssertionError("unexpected packages: %s" % debs)
    return debs
