"""The timer calls its owner after something has waited, and ends with it."""

import gc
import threading
import weakref

from frostline.monitoring.flush_timer import FlushTimer


class Owner:
    """Says how long to wait each time it is called."""

    def __init__(self, seconds, *answers):
        self.answers, self.calls, self.done = list(answers), 0, threading.Event()
        self.timer = FlushTimer(self.flush, seconds)

    def flush(self):
        self.calls += 1
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            self.done.set()
        return answer


def test_it_calls_until_nothing_waits_and_again_when_something_does():
    owner = Owner(0.01, 0.01, 0.01, None)
    assert owner.timer._thread is None  # nothing has waited yet
    owner.timer.begin()
    assert owner.done.wait(30) and owner.calls == 3
    thread = owner.timer._thread
    owner.done.clear()
    owner.timer.begin()
    assert owner.done.wait(30) and owner.calls == 4 and owner.timer._thread is thread and thread.daemon
    owner.timer.close()
    thread.join(30)
    assert not thread.is_alive()
    owner.timer.begin()
    assert owner.timer._thread is thread and owner.calls == 4  # closed for good


def test_it_ends_with_its_owner_in_the_middle_of_an_hour():
    owner = Owner(3600.0)
    owner.timer.begin()
    thread, gone = owner.timer._thread, weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None
    thread.join(30)
    assert not thread.is_alive()
