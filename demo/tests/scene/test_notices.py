"""Who waits for results is told of the first notice that has enough of them."""

from __future__ import annotations

from tocsin.model.results import Execution, Notice, encode_notice
from tocsin_demo.scene.application import CHANNEL
from tocsin_demo.scene.notices import Notices


def notice(*executions: tuple[str, int]) -> bytes:
    return encode_notice(Notice(1, 0, tuple(Execution(name, 1, results) for name, results in executions), ()))


async def test_the_next_notice_with_enough_results_of_the_channel_is_the_moment() -> None:
    notices = Notices()
    notices.take(notice((CHANNEL, 100)))  # before anybody waits
    few, many = notices.expect(5), notices.expect(50)
    notices.take(notice((CHANNEL, 4), ("Another", 100)))
    assert not few.done() and not many.done()
    notices.take(notice((CHANNEL.lower(), 5)))
    assert few.done() and not many.done()
    notices.take(b"of another version")
    notices.take(notice((CHANNEL, 50)))
    assert many.done()


async def test_who_does_not_wait_any_more_is_forgotten() -> None:
    notices = Notices()
    notices.expect(1).cancel()
    notices.take(notice((CHANNEL, 1)))
