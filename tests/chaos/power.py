"""A disk that keeps, when the power is cut, what had been written to it, and nothing else.

An ext4 file system in an image file. What a process writes lies in the kernel's memory until
somebody syncs it; only then is it in the image. A copy of the image is what a power cut leaves.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import TracebackType

import pytest

SIZE_MIB = 96


class CutDisk:
    """A small disk at `place`. A context manager; skips the test where none can be mounted."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / "disk"
        self.place.mkdir(parents=True)
        self._image, self._left = folder / "disk.img", folder / "left.img"
        with self._image.open("wb") as image:
            image.truncate(SIZE_MIB << 20)
        try:
            _do("mkfs.ext4", "-q", "-F", str(self._image))
            self._mount(self._image)
        except OSError as error:
            pytest.skip(f"a power cut needs {error.filename}: {error.strerror}")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"a power cut needs root and loop devices: {error.stderr.strip()}")

    def __enter__(self) -> CutDisk:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _do("umount", str(self.place))

    def cut(self) -> None:
        """Keeps what is on the disk at this moment. Nobody may be writing."""
        shutil.copyfile(self._image, self._left)

    def return_of_power(self) -> None:
        """The disk as the cut left it, in the same place. Nobody may have a file open on it."""
        _do("umount", str(self.place))
        self._mount(self._left)

    def _mount(self, image: Path) -> None:
        _do("mount", "-o", "loop", str(image), str(self.place))


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
