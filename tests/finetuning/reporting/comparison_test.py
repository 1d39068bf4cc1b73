"""The table of teacher and student: errors for enough examples, whose number is told."""

from finetuning.reporting.comparison import table


def test_the_table_by_hand():
    common = {"layers": 2, "parameters": 1000, "accuracy": 0.5, "dev_examples": 29}
    results = {
        "teacher": common | {"examples_per_s": 100.0, "standard_errors": {}},
        "student": common | {"examples_per_s": 250.0, "standard_errors": {"accuracy": 0.125}},
    }
    assert table(results, ("accuracy",)).splitlines() == [
        "| 29 dev examples | layers | parameters | accuracy | examples/s | speed-up |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| teacher | 2 | 1,000 | 0.5000 | 100 | 1.0 |",
        "| student | 2 | 1,000 | 0.5000 ± 0.1250 | 250 | 2.5 |",
    ]
