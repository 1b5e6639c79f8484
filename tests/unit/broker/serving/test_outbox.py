"""When answers leave: the first of a turn at once, the others at its end, each connection's in its own order."""

from collections.abc import Callable

from martlet.broker.serving.outbox import Outbox


class _Loop:
    def __init__(self) -> None:
        self._soon: list[Callable[[], None]] = []
        self.outbox = Outbox(self._soon.append)

    def end_turn(self) -> None:
        ending, self._soon[:] = [*self._soon], []
        for callback in ending:
            callback()


class _Sender:
    def __init__(self, on_send: Callable[[], None] = lambda: None) -> None:
        self.sent = 0
        self._on_send = on_send

    def send_waiting(self) -> None:
        self.sent += 1
        self._on_send()


def test_the_first_of_a_turn_need_not_wait() -> None:
    loop = _Loop()
    assert loop.outbox.may_send(_Sender())
    loop.end_turn()
    assert loop.outbox.may_send(_Sender())


def test_the_others_are_sent_when_the_turn_ends_and_only_once() -> None:
    loop, senders = _Loop(), [_Sender() for _ in range(3)]
    loop.outbox.may_send(_Sender())
    assert [loop.outbox.may_send(sender) for sender in senders] == [False] * 3
    assert [sender.sent for sender in senders] == [0, 0, 0]
    loop.end_turn()
    loop.end_turn()
    assert [sender.sent for sender in senders] == [1, 1, 1]


def test_who_has_an_answer_while_others_are_sent_begins_a_new_turn() -> None:
    loop = _Loop()
    granted: list[bool] = []
    late = _Sender()
    loop.outbox.may_send(_Sender())
    loop.outbox.may_send(_Sender(lambda: granted.append(loop.outbox.may_send(late))))
    loop.end_turn()
    assert granted == [True], "its answer is the first of the next turn, so it goes at once"
    assert loop.outbox.may_send(late) is False
    loop.end_turn()
    assert late.sent == 1
