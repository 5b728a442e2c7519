"""Numbers in Prometheus' format."""

import os

from disttrain.serve.measures import Family, Histogram, Measures, private_bytes


def test_values_by_label_are_written_with_escapes() -> None:
    family = Family("n", "counter", "text", ("model",))
    family.add(labels=('a"\\\n',))
    family.add(2.5, ("b",))
    assert family.lines() == ['n{model="a\\"\\\\\\n"} 1', 'n{model="b"} 2.5']
    plain = Family("g", "gauge", "text")
    assert plain.lines() == ["g 0"]
    plain.put(3)
    assert plain.lines() == ["g 3"]


def test_buckets_count_all_that_is_not_larger() -> None:
    histogram = Histogram("h", "text", (1.0, 2.0), ("m",))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.add(value, ("a",))
    assert histogram.lines() == [
        'h_bucket{m="a",le="1"} 2',
        'h_bucket{m="a",le="2"} 3',
        'h_bucket{m="a",le="+Inf"} 4',
        'h_sum{m="a"} 12',
        'h_count{m="a"} 4',
    ]


def test_all_families_stand_in_the_text_once() -> None:
    measures = Measures()
    measures.requests.add(labels=("m", "200"))
    text = measures.text()
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(set(names)) == len(names) == len(vars(measures))
    assert 'disttrain_requests_total{model="m",code="200"} 1' in text and text.endswith("\n")


def test_memory_of_a_process() -> None:
    assert private_bytes(os.getpid()) > 1 << 20
    assert private_bytes(1 << 30) == 0
