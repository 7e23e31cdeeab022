from io import StringIO

import pytest

from scripts.progress import board, progress


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lines(total: int | None, done: int, steps: int, seconds: float) -> list[str]:
    stream, clock = StringIO(), Clock()
    with progress("sft [1]", total, done=done, stream=stream, every=10.0, clock=clock) as bar:
        for step in range(steps):
            clock.now += seconds
            bar.advance(note=f"loss {step}")
    return stream.getvalue().splitlines()


def test_the_estimate_counts_only_the_work_of_this_process():
    assert lines(total=100, done=90, steps=2, seconds=30.0) == [
        "sft [1] 90/100 · 0:00 elapsed",
        "sft [1] 91/100 · 0:30 elapsed · 4:30 left · loss 0",
        "sft [1] 92/100 · 1:00 elapsed · 4:00 left · loss 1",
    ]


@pytest.mark.parametrize(("steps", "seconds", "written"), [(100, 1.0, 11), (5, 1.0, 2), (0, 1.0, 1)])
def test_a_line_now_and_then_and_one_at_the_end(steps: int, seconds: float, written: int):
    found = lines(None, 0, steps, seconds)
    assert len(found) == written
    assert found[-1].startswith(f"sft [1] {steps} ·")


def test_hours():
    assert "2:00:00 elapsed · 6:00:00 left" in lines(total=4, done=0, steps=1, seconds=7200.0)[-1]


def test_a_bar_of_a_board_is_told_where_it_stands():
    stream, clock = StringIO(), Clock()
    with board(stream, every=10.0, clock=clock) as bars:
        bar = bars.bar("sft")
        clock.now += 8  # the step starts up
        bar.set(40, 100)  # done before: not this process's pace
        for done in (40, 44):
            clock.now += 10
            bar.set(done, 100, "loss 1.2" if done == 44 else "")
        clock.now += 4
        bar.set(100)
        bar.close()
    assert stream.getvalue().splitlines() == [
        "sft 0 · 0:00 elapsed",
        "sft 40/100 · 0:10 elapsed",
        "sft 44/100 · 0:20 elapsed · 4:40 left · loss 1.2",
        "sft 100/100 · 0:24 elapsed · 0:00 left · loss 1.2",
    ]
