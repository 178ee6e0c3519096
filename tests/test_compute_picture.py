"""The picture of accuracy against steps: its points lie where the numbers say."""

from __future__ import annotations

import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from encore.compute_picture import HEIGHT, WIDTH, Point, draw_compute_picture, point_of
from encore.errors import EncoreError

SVG = "{http://www.w3.org/2000/svg}"
POINTS = {
    "fixed-01": Point(140, 80.0, 1.0),
    "fixed-10": Point(1400, 92.0, 0.5),
    "fixed-02": Point(280, 86.0, 0.0),
    "budget <5>": Point(700, 91.9, 0.7),
}


def drawn(points: dict[str, Point]) -> ElementTree.Element:
    return ElementTree.fromstring(
        draw_compute_picture(points, ["fixed-01", "fixed-02", "fixed-10"], "A title")
    )


def test_points_lie_on_a_logarithmic_scale_and_an_even_one() -> None:
    circles = [circle for circle in drawn(POINTS).iter(f"{SVG}circle") if circle.get("class") == "group"]
    places = {
        name: (float(circle.get("cx", "")), float(circle.get("cy", "")))
        for name, circle in zip(POINTS, circles, strict=True)
    }
    for left, top in places.values():
        assert 0 < left < WIDTH
        assert 0 < top < HEIGHT
    across = (places["fixed-10"][0] - places["fixed-01"][0]) / math.log10(10)
    assert places["fixed-02"][0] - places["fixed-01"][0] == pytest.approx(across * math.log10(2), abs=0.2)
    down = (places["fixed-01"][1] - places["fixed-10"][1]) / 12
    assert places["fixed-01"][1] - places["fixed-02"][1] == pytest.approx(6 * down, abs=0.2)


def test_line_joins_what_it_is_to_join_in_the_order_of_steps() -> None:
    root = drawn(POINTS)
    (line,) = [line for line in root.iter(f"{SVG}polyline") if line.get("class") == "joined"]
    corners = [tuple(map(float, corner.split(","))) for corner in line.get("points", "").split()]
    assert len(corners) == 3
    assert corners == sorted(corners)


def test_names_are_readable_whatever_they_are_and_do_not_overlap() -> None:
    crowd = {f"group {number} <&>": Point(500 + number, 90 + number / 100, 0.2) for number in range(20)}
    for points in (POINTS, crowd):
        texts = {text.text: float(text.get("y", "")) for text in drawn(points).iter(f"{SVG}text")}
        heights = sorted(texts[name] for name in points)
        assert all(other - one >= 13.9 for one, other in pairwise(heights))
        assert heights[-1] <= HEIGHT + 5


def test_single_point_can_be_drawn_and_none_cannot() -> None:
    assert len(list(drawn({"alone": Point(100, 50.0, 0.0)}).iter(f"{SVG}circle"))) == 1
    with pytest.raises(EncoreError, match="there is nothing to draw"):
        draw_compute_picture({}, [], "A title")


def test_point_is_the_mean_of_the_runs() -> None:
    records = [
        {"metrics": {"average_accuracy": accuracy}, "sgd_steps": steps}
        for accuracy, steps in ((0.5, 100), (0.7, 140))
    ]
    assert point_of(records) == pytest.approx(Point(120, 60, 10))
