"""Reads the hooks of a session from their files, and says which of them may run."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from acp_bridge.features.hooks import config, notices, trust
from acp_bridge.features.hooks.definitions import Hook
from acp_bridge.features.hooks.find import may_be_there
from acp_bridge.features.hooks.found import FoundHooks, Project
from acp_bridge.features.hooks.places import OWN_FILE, PROJECT_FILE

#: bytes that a file of hooks may have.
_LARGEST = 1024 * 1024


def read(home: Path, folder: Path) -> FoundHooks | None:
    """Return the hooks of `home` and of a project, with notices; None if there is neither."""
    own, project = home / OWN_FILE, folder / PROJECT_FILE
    found = [_of_home(own)]
    if not _same(own, project):
        found.append(_of_project(home, folder))
    there = [each for each in found if each is not None]
    if not there:
        return None
    return FoundHooks(
        tuple(hook for each in there for hook in each.hooks),
        next((each.project for each in there if each.project), None),
        tuple(said for each in there for said in each.notices),
        any(each.person_asked for each in there),
        {path: at for each in there for path, at in each.files.items()},
    )


def load(path: Path, *, project: bool) -> tuple[bytes, tuple[Hook, ...]] | None:
    """Return the bytes and the hooks of a file, None if it is not there; raises BadHooks."""
    try:
        found = trust.read_text(path, _LARGEST)
    except trust.NotTrustable as error:
        raise config.BadHooks(str(error)) from error
    if found is None:
        return None
    content, text = found
    return content, config.parse(text, project=project)


def hooks_in(path: Path, *, project: bool) -> tuple[Hook, ...] | None:
    """Return the hooks of a file as a session would have them; None if it is not there.

    The hooks of a project are not compared with those that are trusted. Raises BadHooks.
    """
    loaded = load(path, project=True) if project else _load_own(path)
    return loaded[1] if loaded else None


def _load_own(path: Path) -> tuple[bytes, tuple[Hook, ...]] | None:
    """Do as `load` does for the user's own file, which nobody else may write."""
    loaded = load(path, project=False)
    try:
        if loaded:
            trust.check_own(path)
    except trust.NotTrustable as error:
        raise config.BadHooks(str(error)) from error
    return loaded


def _of_home(path: Path) -> FoundHooks | None:
    try:
        loaded = _load_own(path)
    except config.BadHooks as bad:
        said = notices.bad_hooks(str(path), str(bad))
        return FoundHooks(notices=(said,), person_asked=True, files={str(path): None})
    return FoundHooks(loaded[1], files=_files(str(path), loaded[0])) if loaded else None


def _of_project(home: Path, folder: Path) -> FoundHooks | None:
    at = trust.record_path(home, str(folder))
    known = may_be_there(at)
    try:
        record = trust.read_record(at)
    except OSError:
        record = None
    path = PROJECT_FILE
    try:
        loaded = load(folder / PROJECT_FILE, project=True)
    except config.BadHooks as bad:
        said = notices.bad_hooks(path, str(bad))
        return FoundHooks(notices=(said,), person_asked=known, files={path: None})
    if not known:
        said = notices.untrusted_hooks(str(folder))
        return FoundHooks(notices=(said,), files={path: None}) if loaded else None
    if loaded is None or record is None or record.folder != str(folder):
        said = notices.changed_hooks([path], str(folder))
        return FoundHooks(notices=(said,), person_asked=True, files={path: None})
    content, hooks = loaded
    try:
        differs = trust.changed(record.files, trust.hashes(folder, content, hooks))
    except trust.NotTrustable as why:
        said = notices.bad_hooks(path, str(why))
        return FoundHooks(notices=(said,), person_asked=True, files={path: None})
    if differs:
        said = notices.changed_hooks(differs, str(folder))
        return FoundHooks(notices=(said,), person_asked=True, files={path: None})
    known_files = json.dumps(record.files, sort_keys=True).encode()  # what the hooks run, too
    return FoundHooks(hooks, Project(folder, record.files), files=_files(path, known_files))


def _files(path: str, content: bytes) -> dict[str, str | None]:
    return {path: hashlib.sha256(content).hexdigest()}


def _same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
