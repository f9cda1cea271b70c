"""Locks of files: one holder at a time, and none after its end."""

import os
import threading

from frostline.files import locks
from frostline.files.locks import remove_lock_file, take_lock_file, try_lock, waiting_lock


def test_one_holder_at_a_time(tmp_path):
    with open(tmp_path / "lock", "w") as first, open(tmp_path / "lock", "w") as second:
        assert try_lock(first) and not try_lock(second)
        first.close()
        assert try_lock(second)


def test_whoever_waits_comes_next(tmp_path):
    order = []

    def second():
        with waiting_lock(tmp_path / "lock"):
            order.append("second")

    with waiting_lock(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(timeout=0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_lock_file_is_gone_with_its_holder(tmp_path):
    path = tmp_path / "lock"
    first = take_lock_file(path)
    assert first is not None and take_lock_file(path) is None
    remove_lock_file(path, first)
    assert not path.exists()


def test_a_lock_on_a_removed_file_keeps_nobody_out_and_is_not_taken(tmp_path, monkeypatch):
    """A second process opens the file, the first removes it, and only then the second takes the lock."""
    path = tmp_path / "lock"
    first, opened = take_lock_file(path), []

    def lock_late(handle):
        if not opened:
            remove_lock_file(path, first)
        opened.append(handle)
        return try_lock(handle)

    monkeypatch.setattr(locks, "try_lock", lock_late)
    second = take_lock_file(path)
    assert len(opened) == 2 and os.fstat(second).st_ino == path.stat().st_ino
    monkeypatch.undo()
    assert take_lock_file(path) is None
    remove_lock_file(path, second)


def test_somebody_elses_lock_file_is_not_removed(tmp_path):
    path = tmp_path / "lock"
    first = take_lock_file(path)
    path.unlink()
    second = take_lock_file(path)
    remove_lock_file(path, first)
    assert path.exists()
    remove_lock_file(path, second)
