#!/usr/bin/env python3
"""Writes what is in the binary as an SPDX 2.3 document (JSON) to stdout: leafctl, and each Debian package whose code is
linked into it, with its version, as the build recorded them.

Usage: sbom.py BUILD
"""

import hashlib
import json
import os
import re
import sys


def package(name, version, **more):
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        **more,
    }


def main():
    build = sys.argv[1]
    with open(os.path.join(build, "config", "libraries.txt"), encoding="utf-8") as file:
        libraries = [line.split() for line in file.read().splitlines() if line]
    assert libraries, "the build has recorded no library"
    with open(os.path.join(build, "CPackConfig.cmake"), encoding="utf-8") as file:
        settings = file.read()
    version = re.search(r'CPACK_PACKAGE_VERSION "([^"]+)"', settings).group(1)
    release = re.search(r'CPACK_DEBIAN_PACKAGE_RELEASE "1~deb([^"]+)"', settings).group(1)
    with open(os.path.join(build, "leafctl"), "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    own = package("leafctl", version, primaryPackagePurpose="APPLICATION")
    packages = [own]
    for name, library_version in libraries:
        purl = "pkg:deb/debian/%s@%s?distro=debian-%s" % (name, library_version, release)
        packages.append(
            package(
                name,
                library_version,
                supplier="Organization: Debian",
                externalRefs=[
                    {
                        "referenceCategory": "PACKAGE-MANAGER",
                        "referenceType": "purl",
                        "referenceLocator": purl.replace("+", "%2B"),
                    }
                ],
            )
        )
    relations = [
        {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": own["SPDXID"]}
    ] + [
        {"spdxElementId": own["SPDXID"], "relationshipType": "STATIC_LINK", "relatedSpdxElement": one["SPDXID"]}
        for one in packages[1:]
    ]
    # The same build has the same document: SOURCE_DATE_EPOCH, or nothing of the time.
    created = os.environ.get("LEAF_SBOM_CREATED", "1970-01-01T00:00:00Z")
    json.dump(
        {
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": "leafctl-%s" % version,
            "documentNamespace": "https://spdx.org/spdxdocs/leafctl-%s-%s" % (version, digest),
            "creationInfo": {"created": created, "creators": ["Tool: scripts/sbom.py"]},
            "packages": packages,
            "relationships": relations,
        },
        sys.stdout,
        indent=1,
    )
    print()


if __name__ == "__main__":
    main()
