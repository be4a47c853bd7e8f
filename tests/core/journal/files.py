"""What lies on the disk, looked at from a test."""

import stat
from pathlib import Path


def size(path: Path) -> int:
    return path.stat().st_size


def inode(path: Path) -> int:
    return path.stat().st_ino


def tree(folder: Path) -> list[Path]:
    """All below a folder, and the folder itself."""
    return [folder, *sorted(folder.rglob("*"))]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def wal(path: Path) -> Path:
    """The write-ahead log of a database file."""
    return path.with_name(path.name + "-wal")


def remove(folder: Path, pattern: str) -> None:
    for path in folder.glob(pattern):
        path.unlink()


def all_bytes(folder: Path) -> bytes:
    """Return what stands in all the files of a folder, one behind the other."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
