"""Put the crates of native/Cargo.lock into sbom/shoal.cdx.json; the packages there stay."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SBOM = ROOT / "sbom" / "shoal.cdx.json"

#: The others are built for no platform of the native module.
PLATFORM = "x86_64-unknown-linux-gnu"


def metadata(*arguments: str) -> dict[str, Any]:
    """Return cargo's description of the crates in the lock."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--manifest-path=native/Cargo.toml"]
    try:
        output = subprocess.run([*command, *arguments], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        sys.exit(
            f"The crates of native/Cargo.lock cannot be listed: {error}. Install cargo (Rust 1.89 or newer)."
        )
    found: dict[str, Any] = json.loads(output)
    return found


def purl(crate: dict[str, Any]) -> str:
    """Return the URL of a crate."""
    return f"pkg:cargo/{crate['name']}@{crate['version']}"


def is_macro(crate: dict[str, Any]) -> bool:
    """Return whether the compiler runs a crate, instead of linking it."""
    return any("proc-macro" in target["kind"] for target in crate["targets"])


def linked(found: dict[str, Any]) -> Iterator[str]:
    """Yield the ids of the crates that are linked into the extension."""
    macros = {each["id"] for each in found["packages"] if is_macro(each)}
    nodes = {each["id"]: each for each in found["resolve"]["nodes"]}
    waiting = [found["resolve"]["root"]]
    seen = set(waiting)
    while waiting:
        crate = waiting.pop()
        yield crate
        for each in nodes[crate]["deps"]:
            is_normal = any(kind["kind"] is None for kind in each["dep_kinds"])
            if is_normal and each["pkg"] not in seen | macros:
                seen.add(each["pkg"])
                waiting.append(each["pkg"])


def component(crate: dict[str, Any], *, is_linked: bool) -> dict[str, Any]:
    """Return a crate as a component: optional, or excluded if it only serves the build."""
    if not crate["license"]:
        sys.exit(f"The crate {crate['name']} {crate['version']} declares no licence. Add it here.")
    licence = crate["license"].replace("/", " OR ")
    expression = {"acknowledgement": "declared", "expression": licence}
    single = {"license": {"acknowledgement": "declared", "id": licence}}
    return {
        "bom-ref": purl(crate),
        "description": " ".join((crate["description"] or "").split()),
        "licenses": [expression if " " in licence else single],
        "name": crate["name"],
        "purl": purl(crate),
        "scope": "optional" if is_linked else "excluded",
        "type": "library",
        "version": crate["version"],
    }


def main() -> None:
    """Replace the crates in the list of packages by those of the lock."""
    found = metadata()
    within = set(linked(metadata("--filter-platform", PLATFORM)))
    crates = {each["id"]: each for each in found["packages"]}
    components = [component(crate, is_linked=name in within) for name, crate in crates.items()]
    edges: list[dict[str, Any]] = [
        {
            "ref": purl(crates[node["id"]]),
            "dependsOn": sorted(purl(crates[each]) for each in node["dependencies"]),
        }
        for node in found["resolve"]["nodes"]
    ]

    sbom = json.loads(SBOM.read_text(encoding="utf-8"))
    # The packages of the list, by cyclonedx-py, have references of another form.
    packages = [each for each in sbom["components"] if not each["bom-ref"].startswith("pkg:")]
    sbom["components"] = packages + sorted(components, key=lambda each: each["bom-ref"])
    kept = [each for each in sbom["dependencies"] if not each["ref"].startswith("pkg:")]
    (root,) = (each for each in kept if each["ref"] == sbom["metadata"]["component"]["bom-ref"])
    native = purl(crates[found["resolve"]["root"]])
    root["dependsOn"] = [each for each in root["dependsOn"] if not each.startswith("pkg:")] + [native]
    sbom["dependencies"] = kept + sorted(edges, key=lambda each: each["ref"])
    SBOM.write_text(json.dumps(sbom, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
