"""Calls on a thread of their own: in order, bounded, and never a failure of the caller."""

import logging
import threading

from frostline.monitoring.callback_queue import CallbackQueue


def test_calls_are_made_in_order_on_another_thread():
    queue, made = CallbackQueue(), []
    for number in range(50):
        queue.call(lambda number=number: made.append((number, threading.current_thread())))
    assert queue.wait(30)
    assert [number for number, _ in made] == list(range(50))
    assert threading.current_thread() not in {thread for _, thread in made}
    assert not any(thread.is_alive() for _, thread in made)  # no thread waits for calls that may never come
    queue.call(lambda: made.append(None))
    assert queue.wait(30) and made[-1] is None


def test_a_full_queue_drops_and_counts(caplog):
    queue, gate, begun, made = CallbackQueue(most=2), threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        gate.wait(30)

    queue.call(slow)
    assert begun.wait(30)
    with caplog.at_level(logging.WARNING, "frostline"):
        for number in range(5):
            queue.call(lambda number=number: made.append(number))
    assert not queue.wait(0.01)
    gate.set()
    assert queue.wait(30) and made == [0, 1] and queue.dropped == 3 and len(caplog.records) == 1


def test_exceptions_are_counted_and_logged_once(caplog):
    queue, made = CallbackQueue(), []
    with caplog.at_level(logging.WARNING, "frostline"):
        for _ in range(3):
            queue.call(lambda: 1 / 0)
        queue.call(lambda: made.append(queue.is_running_here and queue.wait(30)))
        assert queue.wait(30)
    assert queue.failures == 3 and len(caplog.records) == 1 and "ZeroDivisionError" in caplog.text
    assert made == [True] and not queue.is_running_here
