"""Locks of files: one holder at a time, and none after its end."""

import threading

from frostline.files.locks import try_lock, waiting_lock


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
