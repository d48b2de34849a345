"""Figures of `make bench-mirror`: what counts as warm, medians, ratios."""

import pytest
from bench.mirror.figures import CatchUp, Sample, catch_up, middle, table
from bench.mirror.subjects import tuned
from bench.mirror.workloads import FULL, REPEATED, Workload


def test_figures_begin_at_a_fifth_and_memory_and_the_whole_at_the_start() -> None:
    samples = [
        Sample(0.0, 0, 5.0, 900_000_000),
        Sample(10.0, 200_000, 6.0, 300_000_000),
        Sample(14.0, 1_000_000, 10.0, 400_000_000),
    ]
    found = catch_up(samples, 1_000_000, 1000)
    assert found == CatchUp(200.0, 200_000.0, 5.0, 10.0, 900.0)


def test_a_copy_that_was_over_between_two_samples_has_no_figures() -> None:
    with pytest.raises(ValueError, match="use more records"):
        catch_up([Sample(0.0, 0, 0.0, 0), Sample(1.0, 10, 1.0, 0)], 10, 1000)


def test_the_median_is_of_each_figure() -> None:
    runs = [CatchUp(float(n), 1.0, float(10 - n), 1.0, 1.0) for n in (1, 9, 5)]
    assert middle(runs) == CatchUp(5.0, 1.0, 5.0, 1.0, 1.0)


def test_the_table_says_how_many_times_a_baseline_costs() -> None:
    ours, theirs = CatchUp(300.0, 1000.0, 0.5, 1.0, 70.0), CatchUp(100.0, 1000.0, 5.0, 9.0, 2000.0)
    lines = table({"ours": ours, "theirs": theirs}, ("theirs",)).splitlines()
    assert lines[0].endswith("| theirs : this |")
    assert lines[2] == "| ours | 300 | 1,000 | 0.50 | 1.00 | 70 | 10.0 |"
    assert lines[3].endswith("| 1.0 |")


def test_names_of_workloads_can_be_topics_and_differ() -> None:
    assert Workload(100, 0, "none", 1).name == "100b-1record-none"
    assert len({one.name for one in FULL}) == len(FULL)
    assert len(REPEATED) == 6


def test_client_settings_have_the_prefix_of_their_own_cluster() -> None:
    found = tuned("east", "west")
    assert found["east.consumer.fetch.min.bytes"] == "1048576"
    assert found["west.producer.linger.ms"] == "20"
