"""What is in the three wheels, and what they say of themselves."""

from __future__ import annotations

import email
import subprocess
import sys
import zipfile
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEMBERS = {"tocsin": ROOT, "tocsin_demo": ROOT / "demo", "tocsin_labs": ROOT / "labs"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    directory = tmp_path_factory.mktemp("wheels")
    for member in MEMBERS.values():
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
        subprocess.run(build, cwd=member, check=True, capture_output=True, timeout=120)
    return {path.name.partition("-")[0]: zipfile.ZipFile(path) for path in directory.glob("*.whl")}


def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def test_each_wheel_has_its_own_package_and_no_other(wheels: dict[str, zipfile.ZipFile]) -> None:
    assert wheels.keys() == MEMBERS.keys()
    for name, wheel in wheels.items():
        tops = {each.partition("/")[0] for each in wheel.namelist()}
        assert {each for each in tops if not each.endswith(".dist-info")} == {name}
        assert f"{name}/py.typed" in wheel.namelist()


def test_the_product_has_no_code_of_the_labs(wheels: dict[str, zipfile.ZipFile]) -> None:
    product = wheels["tocsin"].namelist()
    assert not [each for each in product if "/lab" in each or "demo" in each or "scene" in each]
    assert len(product) > 400, "the product itself is there"


def test_extras_of_the_product_bring_the_others_in_the_same_version(
    wheels: dict[str, zipfile.ZipFile],
) -> None:
    about = {name: metadata(wheel) for name, wheel in wheels.items()}
    (version,) = {each["Version"] for each in about.values()}
    needed = about["tocsin"].get_all("Requires-Dist") or []
    for extra, package in (("demo", "tocsin-demo"), ("lab", "tocsin-demo"), ("lab", "tocsin-labs")):
        assert f"{package}=={version}; extra == '{extra}'" in needed
    assert f"tocsin=={version}" in (about["tocsin_demo"].get_all("Requires-Dist") or [])
    assert f"tocsin-demo=={version}" in (about["tocsin_labs"].get_all("Requires-Dist") or [])


@pytest.mark.parametrize(("package", "verb"), [("tocsin_demo", "demo"), ("tocsin_labs", "lab")])
def test_the_others_add_their_verb(wheels: dict[str, zipfile.ZipFile], package: str, verb: str) -> None:
    wheel = wheels[package]
    (name,) = (each for each in wheel.namelist() if each.endswith(".dist-info/entry_points.txt"))
    assert wheel.read(name).decode().startswith(f"[tocsin.commands]\n{verb} = {package}.command:")
